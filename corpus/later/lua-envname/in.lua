local f = load("local s = 1; return ('_ENV').x + s", "=chunk")
print(pcall(f))
