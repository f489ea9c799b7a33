"""How things are measured and written down; it knows no contender and no section."""
