"""Terms of rows, which live with the families (``forestmix.families.row_terms``)."""

from forestmix.families.row_terms import Terms, slopes_of, terms_of

__all__ = ["Terms", "slopes_of", "terms_of"]
