"""Forest mixture models: each observed variable has one unknown parent among the latents (paper, section 3.1).

``estimator.py`` needs scikit-learn, so nothing is imported here.
"""
