local code = {"local x = {"}
for i = 1, 257 do code[#code + 1] = i .. ".5," end
code[#code + 1] = "} return 8 | (2 or 3)"
print(load(table.concat(code))())
