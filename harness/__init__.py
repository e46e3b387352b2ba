"""Packs, judges, times and compares kernels for the FlashInfer-Bench contest.

Importing this package loads no torch: every module that needs it imports it on use.
"""
