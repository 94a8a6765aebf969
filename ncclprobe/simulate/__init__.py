"""Synthetic jobs with a planted culprit: their flight-recorder dumps, in the formats torch writes, and the truth.

In: a scenario and a number of ranks. Out: dumps and `truth.json`. A virtual clock runs the ranks' calls; there are no
processes and no torch.
"""
