def renew(text, result): return text
