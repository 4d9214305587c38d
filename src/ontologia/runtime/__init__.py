"""How state changes: sessions collect what is wanted, the delta says what is new, a commit publishes it.

Migrations and type drops live here too. Where and how rows are stored is the engines' business.
"""
