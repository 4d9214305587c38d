"""Loads in process: the mapping, the rules and the reports of the pipeline on Spark, on Arrow, for small work.

What only Spark can do (its expressions, JDBC, patterns on other file systems) is told apart here, and left to it.
"""
