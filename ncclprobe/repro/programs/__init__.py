"""Training programs that hang, as users write them; each runs alone under torchrun and imports nothing of ours.

In: `--at-step N` (the planted step), `--backend auto|gloo|nccl`, `--steps N`, `--fixed` (the repaired program).
Out: a line `step N ...` on the standard output of every rank after each step, and exit status 0 if it gets to the end.
One that hangs in the set-up of the job says `joining as rank N of M` before it.
"""
