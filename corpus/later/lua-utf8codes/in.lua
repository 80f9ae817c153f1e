local function show(s)
  local t = {}
  local ok, err = pcall(function()
    for p, c in utf8.codes(s) do t[#t+1] = p .. ":" .. c end
  end)
  print(ok, table.concat(t, " "), err)
end
show("abc")
show("in\x80valid")
