//! Commands of Redis 7.2 that Kasha does not know yet: who sends one is told that it is not there, and not that there is no such command.

/// Their names, in order.
const LATER: &str = "
    acl bgrewriteaof bgsave blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin debug dump eval eval_ro evalsha
    evalsha_ro failover fcall fcall_ro function geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
    georadiusbymember_ro geosearch geosearchstore hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset
    hrandfield hscan hset hsetnx hstrlen hvals lastsave lindex linsert llen lmove lmpop lolwut lpop lpos lpush lpushx lrange lrem
    lset ltrim memory migrate module monitor move pfadd pfcount pfdebug pfmerge pfselftest psubscribe psync publish pubsub
    punsubscribe replconf replicaof restore restore-asking role rpop rpoplpush rpush rpushx sadd save scard script sdiff
    sdiffstore shutdown sinter sintercard sinterstore sismember slaveof smembers smismember smove sort sort_ro spop spublish
    srandmember srem sscan ssubscribe subscribe sunion sunionstore sunsubscribe sync unsubscribe waitaof xack xadd xautoclaim
    xclaim xdel xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore
    zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore
    zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank
    zscan zscore zunion zunionstore
";

/// Whether Redis has a command with this name, in any case, and Kasha has it not.
#[must_use]
pub fn is_later(name: &[u8]) -> bool {
    names().any(|later| later.as_bytes().eq_ignore_ascii_case(name))
}

/// The names of all of them, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    LATER.split_whitespace()
}
