"""Reading rows: which files a window needs, and the rows in force in them, for statements and by identity."""
