// The program of go-redis: see ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	driver = "go-redis"
	prefix = "steps:" + driver + ":"
)

var (
	ctx   = context.Background()
	names = []string{"a", "b", "ends", "pipe", "m1", "m2", "watched", "text"}
)

func say(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		panic(err)
	}
}

// must returns a reply, and fails the step on an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func expect[T any](found, wanted T) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func expectError(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("%v instead of %q", err, text))
	}
}

type step struct {
	name string
	run  func(client, other *redis.Client)
}

var all = []step{
	{"connect", connect}, {"strings", values}, {"expiry", expiry}, {"pipeline", pipeline},
	{"multi", multi}, {"watch", watch}, {"scan", scan}, {"errors", wrong},
}

func connect(client, _ *redis.Client) {
	expect(must(client.Ping(ctx).Result()), "PONG")
	var keys []string
	for _, name := range names {
		keys = append(keys, prefix+name)
	}
	must(client.Del(ctx, keys...).Result())
}

func values(client, _ *redis.Client) {
	a, b, none := prefix+"a", prefix+"b", prefix+"none"
	bytes := make([]byte, 256)
	for index := range bytes {
		bytes[index] = byte(index)
	}
	for _, value := range []string{"text", string(bytes), ""} {
		expect(must(client.Set(ctx, a, value, 0).Result()), "OK")
		expect(must(client.Get(ctx, a).Result()), value)
	}
	expect(must(client.Append(ctx, a, "12").Result()), 2)
	expect(must(client.IncrBy(ctx, a, 30).Result()), 42)
	expect(must(client.MSet(ctx, a, "1", b, "2").Result()), "OK")
	expect(must(client.MGet(ctx, a, none, b).Result()), []any{"1", nil, "2"})
	expect(must(client.Del(ctx, a, none, b).Result()), 2)
}

func expiry(client, _ *redis.Client) {
	key := prefix + "ends"
	must(client.Set(ctx, key, "v", 150*time.Millisecond).Result())
	left := must(client.PTTL(ctx, key).Result())
	expect(left > 0 && left <= 150*time.Millisecond+late(), true)
	until := time.Now().Add(5 * time.Second)
	for client.Get(ctx, key).Err() == nil && time.Now().Before(until) {
		time.Sleep(20 * time.Millisecond)
	}
	expect[error](client.Get(ctx, key).Err(), redis.Nil)
	must(client.Set(ctx, key, "v", 0).Result())
	expect(must(client.Expire(ctx, key, 100*time.Second).Result()), true)
	left = must(client.TTL(ctx, key).Result())
	expect(left >= 90*time.Second && left <= 100*time.Second+late(), true)
	expect(must(client.Persist(ctx, key).Result()), true)
	expect(must(client.TTL(ctx, key).Result()), -1)
}

// late is how much more than is left TTL may tell.
func late() time.Duration {
	if slices.Contains(os.Args, "exact-ends") {
		return 0
	}
	return time.Second
}

func pipeline(client, _ *redis.Client) {
	pipe := client.Pipeline()
	var replies []*redis.IntCmd
	for range 100 {
		replies = append(replies, pipe.Incr(ctx, prefix+"pipe"))
	}
	must(pipe.Exec(ctx))
	for index, reply := range replies {
		expect(reply.Val(), int64(index+1))
	}
}

func multi(client, _ *redis.Client) {
	pipe := client.TxPipeline()
	set, incr, get := pipe.Set(ctx, prefix+"m1", "1", 0), pipe.Incr(ctx, prefix+"m2"), pipe.Get(ctx, prefix+"m1")
	must(pipe.Exec(ctx))
	expect(set.Val(), "OK")
	expect(incr.Val(), 1)
	expect(get.Val(), "1")
}

func watch(client, other *redis.Client) {
	key := prefix + "watched"
	must(client.Set(ctx, key, "5", 0).Result())
	// Between WATCH and EXEC, `change` runs.
	set := func(value string, change func()) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			expect(must(tx.Get(ctx, key).Result()), "5")
			change()
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				return pipe.Set(ctx, key, value, 0).Err()
			})
			return err
		}, key)
	}
	expect[error](set("6", func() { must(other.Set(ctx, key, "5", 0).Result()) }), redis.TxFailedErr)
	expect(set("7", func() {}), nil)
	expect(must(client.Get(ctx, key).Result()), "7")
}

func scan(client, _ *redis.Client) {
	var wanted []string
	var pairs []any
	for number := range 200 {
		wanted = append(wanted, fmt.Sprintf("%sscan:%d", prefix, number))
		pairs = append(pairs, wanted[number], "v")
	}
	must(client.MSet(ctx, pairs...).Result())
	sorted := func(keys []string) []string {
		slices.Sort(keys)
		return slices.Compact(keys)
	}
	var found []string
	pages := client.Scan(ctx, 0, prefix+"scan:*", 30).Iterator()
	for pages.Next(ctx) {
		found = append(found, pages.Val())
	}
	must(0, pages.Err())
	expect(sorted(found), sorted(wanted))
	expect(sorted(must(client.Keys(ctx, prefix+"scan:*").Result())), sorted(wanted))
	expect(time.Since(must(client.Time(ctx).Result())).Abs() < time.Minute, true)
}

func wrong(client, _ *redis.Client) {
	must(client.Set(ctx, prefix+"text", "text", 0).Result())
	expectError(client.Incr(ctx, prefix+"text").Err(), "value is not an integer or out of range")
	expectError(client.Do(ctx, "NOSUCH", "x").Err(), "unknown command 'NOSUCH'")
	expectError(client.Do(ctx, "GET").Err(), "wrong number of arguments for 'get' command")
	expect(must(client.Get(ctx, prefix+"text").Result()), "text")
}

// try runs a step and returns why it failed, or nothing.
func try(step step, client, other *redis.Client) (why string) {
	defer func() {
		if reason := recover(); reason != nil {
			why = fmt.Sprint(reason)
		}
	}()
	step.run(client, other)
	return ""
}

func steps(address string, features []string) int {
	client, other := redis.NewClient(&redis.Options{Addr: address}), redis.NewClient(&redis.Options{Addr: address})
	passed, skipped, failed := []string{}, []string{}, map[string]string{}
	for _, step := range all {
		if step.name == "scan" && !slices.Contains(features, "scan") {
			skipped = append(skipped, step.name)
		} else if why := try(step, client, other); why != "" {
			failed[step.name] = why
		} else {
			passed = append(passed, step.name)
		}
	}
	say(map[string]any{
		"driver": driver, "version": redis.Version(), "passed": passed, "skipped": skipped, "failed": failed,
	})
	return min(len(failed), 1)
}

type tally struct {
	Acknowledged int64 `json:"acknowledged"`
	Unknown      int64 `json:"unknown"`
	GaveUp       int64 `json:"gave_up"`
	Refused      int64 `json:"refused"`
	Astray       int64 `json:"astray"`
}

// counting is one round: every connection counts until it is stopped.
type counting struct {
	stopped atomic.Bool
	group   sync.WaitGroup
	own     []tally
	shared  []tally
	mutex   sync.Mutex
	errors  map[string]int
}

func begin(clients []*redis.Client, round string) *counting {
	c := &counting{
		own: make([]tally, len(clients)), shared: make([]tally, len(clients)), errors: map[string]int{},
	}
	for number, client := range clients {
		c.group.Go(func() { c.count(client, round, number) })
	}
	return c
}

func (c *counting) count(client *redis.Client, round string, number int) {
	own := &c.own[number]
	for !c.stopped.Load() {
		value, told := c.incr(client, round+":"+driver+":"+strconv.Itoa(number), own)
		if told && (value < own.Acknowledged || value > own.Acknowledged+own.Unknown+own.GaveUp) {
			own.Astray++
		}
		c.incr(client, round+":shared", &c.shared[number])
	}
}

func (c *counting) incr(client *redis.Client, key string, tally *tally) (int64, bool) {
	value, err := client.Incr(ctx, key).Result()
	if err == nil {
		tally.Acknowledged++
		return value, true
	}
	var reply redis.Error
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		tally.Refused++
	case !errors.As(err, &reply):
		tally.GaveUp++
	case strings.HasPrefix(err.Error(), "UNKNOWN"):
		tally.Unknown++
	default:
		tally.Refused++
	}
	c.mutex.Lock()
	c.errors[err.Error()]++
	c.mutex.Unlock()
	time.Sleep(10 * time.Millisecond)
	return 0, false
}

func (c *counting) stop() map[string]any {
	c.stopped.Store(true)
	c.group.Wait()
	var shared tally
	for _, part := range c.shared {
		shared.Acknowledged += part.Acknowledged
		shared.Unknown += part.Unknown
		shared.GaveUp += part.GaveUp
		shared.Refused += part.Refused
	}
	return map[string]any{"own": c.own, "shared": shared, "errors": c.errors}
}

func incr(address string, connections int, repeats string) int {
	// A pool of one connection for each goroutine.
	options := redis.Options{Addr: address, PoolSize: 1}
	if repeats == "off" {
		options.MaxRetries = -1
	}
	var clients []*redis.Client
	for range connections {
		own := options
		clients = append(clients, redis.NewClient(&own))
		must(clients[len(clients)-1].Ping(ctx).Result())
	}
	say(map[string]any{"driver": driver, "version": redis.Version(), "connections": connections})
	var round *counting
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "count":
			round = begin(clients, words[1])
		case "stop":
			say(round.stop())
		}
	}
	return 0
}

func main() {
	mode, address, rest := os.Args[1], os.Args[2]+":"+os.Args[3], os.Args[4:]
	if mode == "steps" {
		os.Exit(steps(address, rest))
	}
	os.Exit(incr(address, must(strconv.Atoi(rest[0])), rest[1]))
}
