"""A hunt for wrong answers: problems that are ill-scaled on purpose, solved by forestmix and by oracles of its own.

``python -m tests.hunt`` runs it. Nothing here uses forestmix's numerics but the runs that are judged.
"""
