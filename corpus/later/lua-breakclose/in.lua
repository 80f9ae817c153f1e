local log = {}
local guard = setmetatable({}, {__close = function() log[#log+1] = "closed" end})
local function test()
  for k, v in next, {10}, nil, guard do
    local f = function() return k end
    break
  end
  log[#log+1] = "after loop"
end
test()
print(table.concat(log, ", "))
