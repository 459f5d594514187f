-- One request out of a token bucket. KEYS[1]: the bucket; ARGV: requests a minute, the bucket's size.
-- Millionths of a request; the arithmetic of http/limits.rs. Answers passed (1 or 0), what is left.
local now = clock()
local per_minute, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local f = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = size
if f[1] then
  -- Where the clock went back, the time from there on counts.
  local elapsed = math.max(now - tonumber(f[2]), 0)
  tokens = math.min(tonumber(f[1]) + math.floor(elapsed * per_minute / 60), size)
end
local passed = 0
if tokens >= 1000000 then
  passed, tokens = 1, tokens - 1000000
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.0f', tokens), 'at', string.format('%.0f', now))
-- An empty bucket is full again after two minutes.
redis.call('PEXPIRE', KEYS[1], 130000)
return { tostring(passed), string.format('%.0f', tokens) }
