local function f(a, ...)
  print(debug.getlocal(1, -1))
  print(debug.getlocal(1, -2147483648))
end
f(1, 2, 3)
