-- What the scripts of admission share; it stands before each of them, after the clock.
--
-- KEYS[1] is the prefix of all keys, with the one slot that they live in: `sidetone:{adm}`.
--   :lease:<id>     hash      owner account agent trunk state until since
--   :pool           sorted    lease -> until, all leases; :live the live ones
--   :account:<id>   sorted    the same for one account; :agent: :trunk: :node: likewise
--   :gone:<id>      string    until when a released lease cannot be taken again
--   :epoch          string    identity() of the server while its counts can be trusted
--   :back:<id>      set       owners that told this server of their calls since it was found cold
-- Times are microseconds of the server's clock: below 2^53, so Lua's numbers hold them exactly.
-- Every script answers with a list of strings.

local PREFIX = KEYS[1]
local POOL, LIVE, EPOCH = PREFIX .. ':pool', PREFIX .. ':live', PREFIX .. ':epoch'

-- Leases last a minute at most (in microseconds, and how long a live one does); what nobody touches for
-- two is forgotten by itself.
local LONGEST, LIVE_TTL = 60000000, 15000000
-- How long a lease that was given back cannot be taken again, in microseconds.
local GONE = 10000000
local KEEP_MS = 120000
-- A server whose nodes are silent for this long does not know any more who is on a call.
local EPOCH_MS = 10000
-- Leases that one script removes at most, so that none holds the server up for long. What is left
-- counts for nothing meanwhile: counts look at the time as well.
local REAP = 500

local function key(kind, id)
  return PREFIX .. ':' .. kind .. ':' .. id
end

local function text(number)
  return string.format('%.0f', number)
end

-- Which process this is and whose data it serves: both change when a replica takes over, and the
-- first when a server comes back from its disk. (A server that gets its first replica changes its
-- replication id as well: it is cold for the moment that its nodes need to tell it of their calls.)
local function identity()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local replication = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return run .. '-' .. replication
end

local function is_warm()
  return redis.call('GET', EPOCH) == identity()
end

local function read(lease)
  local f = redis.call('HMGET', key('lease', lease),
    'owner', 'account', 'agent', 'trunk', 'state', 'until', 'since')
  if not f[1] then
    return nil
  end
  return {
    owner = f[1], account = f[2], agent = f[3], trunk = f[4],
    state = f[5], till = tonumber(f[6]), since = f[7],
  }
end

local function indexes(entry)
  local all = { POOL, key('account', entry.account), key('node', entry.owner) }
  if entry.agent ~= '' then
    all[#all + 1] = key('agent', entry.agent)
  end
  if entry.trunk ~= '' then
    all[#all + 1] = key('trunk', entry.trunk)
  end
  if entry.state == 'live' then
    all[#all + 1] = LIVE
  end
  return all
end

local function remove(lease, entry)
  redis.call('DEL', key('lease', lease))
  for _, index in ipairs(indexes(entry)) do
    redis.call('ZREM', index, lease)
  end
end

-- The lease if it is held at this time.
local function held(lease, now)
  local entry = read(lease)
  if entry and entry.till > now then
    return entry
  end
  return nil
end

-- Whether a lease was given back a moment ago. What is remembered for longer than GONE was written before the
-- clock went back.
local function is_gone(lease, now)
  local till = tonumber(redis.call('GET', key('gone', lease)) or '')
  return till and till > now and till <= now + GONE
end

-- Writes a lease, in place of what was there.
local function put(lease, entry, ttl, now)
  local old = read(lease)
  if old then
    remove(lease, old)
  end
  local since = old and old.since or text(now)
  local till = text(now + ttl)
  redis.call('HSET', key('lease', lease), 'owner', entry.owner, 'account', entry.account,
    'agent', entry.agent, 'trunk', entry.trunk, 'state', entry.state, 'until', till, 'since', since)
  redis.call('PEXPIRE', key('lease', lease), KEEP_MS)
  for _, index in ipairs(indexes(entry)) do
    redis.call('ZADD', index, till, lease)
    redis.call('PEXPIRE', index, KEEP_MS)
  end
end

-- Takes away what has run out. An end further ahead than any lease lasts was written before the clock went
-- back: such a lease lasts once more as long as one of its state.
local function reap(now)
  local over = redis.call('ZRANGEBYSCORE', POOL, '-inf', text(now), 'LIMIT', 0, REAP)
  for _, lease in ipairs(over) do
    local entry = read(lease)
    if entry then
      remove(lease, entry)
    else
      redis.call('ZREM', POOL, lease)
      redis.call('ZREM', LIVE, lease)
    end
  end
  local ahead = redis.call('ZRANGEBYSCORE', POOL, '(' .. text(now + LONGEST), '+inf', 'LIMIT', 0, REAP)
  for _, lease in ipairs(ahead) do
    local entry = read(lease)
    if entry then
      put(lease, entry, entry.state == 'live' and LIVE_TTL or LONGEST, now)
    else
      redis.call('ZREM', POOL, lease)
      redis.call('ZREM', LIVE, lease)
    end
  end
end

local function count(index, now)
  return redis.call('ZCOUNT', index, '(' .. text(now), '+inf')
end

-- nil, or the refusal: which cap is reached.
local function full(resource, index, cap, now)
  local current = count(index, now)
  if current < cap then
    return nil
  end
  return { 'full', resource, text(current), text(cap) }
end

-- A wish as acquire and adopt are given it:
-- lease owner account agent trunk state ttl, then the caps of account, agent, trunk, pool, node.
local function wish()
  return {
    lease = ARGV[1], owner = ARGV[2], account = ARGV[3], agent = ARGV[4], trunk = ARGV[5],
    state = ARGV[6], ttl = tonumber(ARGV[7]), caps = {
      account = tonumber(ARGV[8]), agent = tonumber(ARGV[9]), trunk = tonumber(ARGV[10]),
      pool = tonumber(ARGV[11]), node = tonumber(ARGV[12]),
    },
  }
end

local function node_full(w, now)
  return full('node', key('node', w.owner), w.caps.node, now)
end

local function caps_full(w, now)
  local refusal = full('account', key('account', w.account), w.caps.account, now)
  if not refusal and w.agent ~= '' then
    refusal = full('agent', key('agent', w.agent), w.caps.agent, now)
  end
  if not refusal and w.trunk ~= '' then
    refusal = full('trunk', key('trunk', w.trunk), w.caps.trunk, now)
  end
  return refusal or full('pool', POOL, w.caps.pool, now) or node_full(w, now)
end

-- Takes a lease that nobody holds.
local function take(w, now)
  local refusal = caps_full(w, now)
  if refusal then
    return refusal
  end
  put(w.lease, w, w.ttl, now)
  return { 'ok' }
end
