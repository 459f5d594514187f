-- How many leases there are: pending, live.
local now = clock()
local live = count(LIVE, now)
return { 'ok', text(count(POOL, now) - live), text(live) }
