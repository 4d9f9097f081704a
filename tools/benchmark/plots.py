def write_plots(result, d): pass
