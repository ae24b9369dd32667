-- Post the bodies in a file, one JSON object a line, over and over: wrk ... -s posts.lua URL -- FILE
local file
local kind = { ["content-type"] = "application/json" }

function init(arguments)
  file = assert(io.open(arguments[1]))
end

function request()
  local body = file:read()
  if not body then
    file:seek("set")
    body = file:read()
  end
  return wrk.format("POST", "/", kind, body)
end

function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("posts %d %d %d\n", summary.requests, summary.duration, failed))
end
