"""Causes, one file each; every module here defines `DETECTOR`.

In: a `Case`. Out: findings. A detector knows no other detector.
"""
