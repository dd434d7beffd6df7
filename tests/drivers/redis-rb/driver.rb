# The program of redis-rb: see ../README.md.
require "json"
require "redis"

DRIVER = "redis-rb"
PREFIX = "steps:#{DRIVER}:"
NAMES = %w[a b ends pipe m1 m2 watched text].freeze
# How many seconds more than are left TTL may tell.
LATE = ARGV.include?("exact-ends") ? 0 : 1

def expect(found, wanted)
  raise "#{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

def expect_error(text)
  found = yield
rescue Redis::CommandError => error
  raise "#{error.message} instead of #{text}" unless error.message.include?(text)
else
  raise "#{found.inspect} instead of #{text}"
end

STEPS = {
  "connect" => lambda do |client, _other|
    expect(client.ping, "PONG")
    client.del(*NAMES.map { |name| PREFIX + name })
  end,
  "strings" => lambda do |client, _other|
    a, b, none = %w[a b none].map { |name| PREFIX + name }
    ["text", (0..255).to_a.pack("C*"), ""].each do |value|
      expect(client.set(a, value), "OK")
      expect(client.get(a).b, value.b)
    end
    expect(client.append(a, "12"), 2)
    expect(client.incrby(a, 30), 42)
    expect(client.mset(a, "1", b, "2"), "OK")
    expect(client.mget(a, none, b), ["1", nil, "2"])
    expect(client.del(a, none, b), 2)
  end,
  "expiry" => lambda do |client, _other|
    key = "#{PREFIX}ends"
    client.set(key, "v", px: 150)
    expect((1..150 + 1000 * LATE).cover?(client.pttl(key)), true)
    till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 5
    sleep(0.02) while client.get(key) && Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
    expect(client.get(key), nil)
    client.set(key, "v")
    expect(client.expire(key, 100), true)
    expect((90..100 + LATE).cover?(client.ttl(key)), true)
    expect(client.persist(key), true)
    expect(client.ttl(key), -1)
  end,
  "pipeline" => lambda do |client, _other|
    told = client.pipelined { |pipe| 100.times { pipe.incr("#{PREFIX}pipe") } }
    expect(told, (1..100).to_a)
  end,
  "multi" => lambda do |client, _other|
    told = client.multi do |transaction|
      transaction.set("#{PREFIX}m1", "1")
      transaction.incr("#{PREFIX}m2")
      transaction.get("#{PREFIX}m1")
    end
    expect(told, ["OK", 1, "1"])
  end,
  "watch" => lambda do |client, other|
    key = "#{PREFIX}watched"
    client.set(key, "5")
    refused = client.watch(key) do |watching|
      expect(watching.get(key), "5")
      other.set(key, "5")
      watching.multi { |transaction| transaction.set(key, "6") }
    end
    expect(refused, nil)
    done = client.watch(key) { |watching| watching.multi { |transaction| transaction.set(key, "7") } }
    expect(done, ["OK"])
    expect(client.get(key), "7")
  end,
  "scan" => lambda do |client, _other|
    names = (0...200).map { |number| "#{PREFIX}scan:#{number}" }.sort
    client.mset(*names.flat_map { |name| [name, "v"] })
    expect(client.scan_each(match: "#{PREFIX}scan:*", count: 30).to_a.uniq.sort, names)
    expect(client.keys("#{PREFIX}scan:*").sort, names)
    expect((client.time[0] - Time.now.to_i).abs < 60, true)
  end,
  "errors" => lambda do |client, _other|
    client.set("#{PREFIX}text", "text")
    expect_error("value is not an integer or out of range") { client.incr("#{PREFIX}text") }
    expect_error("unknown command 'NOSUCH'") { client.call("NOSUCH", "x") }
    expect_error("wrong number of arguments for 'get' command") { client.call("GET") }
    expect(client.get("#{PREFIX}text"), "text")
  end
}.freeze

def steps(host, port, features)
  client, other = Array.new(2) { Redis.new(host: host, port: port) }
  passed, skipped, failed = [], [], {}
  STEPS.each do |name, step|
    if name == "scan" && !features.include?("scan")
      skipped << name
      next
    end
    step.call(client, other)
    passed << name
  rescue StandardError => error # whatever it is, it is why the step failed
    failed[name] = "#{error.class}: #{error.message}"
  end
  puts JSON.generate(driver: DRIVER, version: Redis::VERSION, passed: passed, skipped: skipped, failed: failed)
  failed.empty? ? 0 : 1
end

# One round: every connection counts until it is stopped.
class Counting
  def initialize(clients, prefix, repeats)
    @stopped = false
    # Who has no connection has sent nothing, unless it was the second attempt.
    @certain = repeats == "off" ? [Redis::CannotConnectError] : []
    @errors = Hash.new(0)
    @own, @shared = Array.new(2) { clients.map { Hash.new(0) } }
    @threads = clients.each_with_index.map { |client, number| Thread.new { count(client, prefix, number) } }
  end

  def count(client, prefix, number)
    own = @own[number]
    until @stopped
      value = incr(client, "#{prefix}:#{DRIVER}:#{number}", own)
      least = own["acknowledged"]
      own["astray"] += 1 if value && !value.between?(least, least + own["unknown"] + own["gave_up"])
      incr(client, "#{prefix}:shared", @shared[number])
    end
  end

  def incr(client, key, tally)
    value = client.incr(key)
    tally["acknowledged"] += 1
    value
  # A system's error comes as it is when the server dies while a connection is made.
  rescue Redis::BaseError, SystemCallError => error
    tally[kind(error)] += 1
    @errors["#{error.class}: #{error.message}"] += 1
    sleep(0.01)
    nil
  end

  def kind(error)
    case error
    when Redis::CommandError then error.message.start_with?("UNKNOWN") ? "unknown" : "refused"
    when *@certain then "refused"
    else "gave_up"
    end
  end

  def stop
    @stopped = true
    @threads.each(&:join)
    shared = @shared.inject { |sum, tally| sum.merge(tally) { |_, one, other| one + other } }
    { own: @own, shared: shared, errors: @errors }
  end
end

def incr(host, port, connections, repeats)
  options = repeats == "default" ? {} : { reconnect_attempts: 0 }
  clients = Array.new(connections) { Redis.new(host: host, port: port, **options) }
  clients.each(&:ping)
  puts JSON.generate(driver: DRIVER, version: Redis::VERSION, connections: connections)
  counting = nil
  $stdin.each_line do |line|
    case line.split
    in ["count", prefix] then counting = Counting.new(clients, prefix, repeats)
    in ["stop"] then puts JSON.generate(counting.stop)
    end
  end
  0
end

$stdout.sync = true
mode, host, port, *rest = ARGV
exit(mode == "steps" ? steps(host, port.to_i, rest) : incr(host, port.to_i, rest[0].to_i, rest[1]))
