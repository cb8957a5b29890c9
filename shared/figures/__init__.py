"""What is reported: numbers of a round, and the final figures of a federation.

Here belongs what turns rounds and evaluations into figures that people compare. What decides
anything belongs elsewhere, and so does how figures are printed or plotted.
"""
