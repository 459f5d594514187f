-- The lease clock: the server's own, so that no node's clock decides.
local function clock()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end
