-- The lease clock of tests: what stands in a key.
local function clock()
  return tonumber(redis.call('GET', KEYS[1] .. ':now'))
end
