# Compiled, but called from Python only.
