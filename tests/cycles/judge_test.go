package main

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

func list(values ...string) []string {
	if values == nil {
		return []string{}
	}
	return values
}

func appends(key, value string) Op          { return Op{Op: "append", Key: key, Value: value} }
func reads(key string, values ...string) Op { return Op{Op: "read", Key: key, Values: list(values...)} }
func writes(key, value string, version uint64) Op {
	return Op{Op: "write", Key: key, Value: value, Version: version}
}
func sees(key, value string, version uint64) Op {
	return Op{Op: "read", Key: key, Value: value, Version: version}
}

func txn(call, returned int64, ops ...Op) Txn {
	return Txn{Call: call, Return: returned, Outcome: executed, Ops: ops}
}

func ended(outcome string, t Txn) Txn {
	t.Outcome = outcome
	return t
}

// Each history has one anomaly, which the judge must name.
func TestPlantedAnomalies(t *testing.T) {
	cases := []struct {
		name, says string
		history    []Txn
	}{
		{"lost update", "G-single", []Txn{
			txn(0, 9, reads("x"), appends("x", "1")), txn(0, 9, reads("x"), appends("x", "2")), txn(10, 11, reads("x", "1", "2"))}},
		{"write skew", "G2", []Txn{
			txn(0, 9, reads("x"), appends("y", "1")), txn(0, 9, reads("y"), appends("x", "2")),
			txn(10, 11, reads("x", "2"), reads("y", "1"))}},
		{"long fork", "G2", []Txn{
			txn(0, 9, appends("x", "1")), txn(0, 9, appends("y", "2")),
			txn(0, 9, reads("x", "1"), reads("y")), txn(0, 9, reads("x"), reads("y", "2"))}},
		{"half of a transaction", "G-single", []Txn{
			txn(0, 9, appends("x", "1"), appends("y", "1")), txn(0, 9, reads("x", "1"), reads("y"))}},
		{"circle of information", "G1c", []Txn{
			txn(0, 9, appends("x", "1"), reads("y", "2")), txn(0, 9, appends("y", "2"), reads("x", "1"))}},
		{"writes in two orders", "G0", []Txn{
			txn(0, 9, appends("x", "1"), appends("y", "1")), txn(0, 9, appends("x", "2"), appends("y", "2")),
			txn(10, 11, reads("x", "1", "2")), txn(10, 11, reads("y", "2", "1"))}},
		{"stale read", "real time", []Txn{txn(0, 1, appends("x", "1")), txn(2, 3, reads("x"))}},
		{"stale read of a register", "real time", []Txn{
			txn(0, 1, writes("x", "a", 5)), txn(2, 3, writes("x", "b", 6)), txn(4, 5, sees("x", "a", 5))}},
		{"a write that is gone", "real time", []Txn{txn(0, 1, writes("x", "a", 5)), txn(2, 3, sees("x", "", 0))}},
		{"order against real time", "real time", []Txn{
			txn(0, 1, appends("x", "1")), txn(2, 3, appends("x", "2")), txn(4, 5, reads("x", "2", "1"))}},
		{"register skew", "G-single", []Txn{
			txn(0, 9, writes("x", "a", 1), writes("y", "a", 1)), txn(0, 9, sees("x", "a", 1), sees("y", "", 0))}},
		{"doubled", "twice", []Txn{txn(0, 1, appends("x", "1")), txn(2, 3, reads("x", "1", "1"))}},
		{"refused, and there", "G1a", []Txn{ended(notExecuted, txn(0, 1, appends("x", "1"))), txn(2, 3, reads("x", "1"))}},
		{"from nowhere", "nobody wrote", []Txn{txn(2, 3, reads("x", "7"))}},
		{"intermediate", "G1b", []Txn{
			txn(0, 9, appends("x", "1"), appends("x", "2")), txn(0, 9, reads("x", "1")), txn(10, 11, reads("x", "1", "2"))}},
		{"torn apart", "apart", []Txn{
			txn(0, 9, appends("x", "1"), appends("x", "3")), txn(0, 9, appends("x", "2")), txn(10, 11, reads("x", "1", "2", "3"))}},
		{"not its own", "its own", []Txn{txn(0, 9, appends("x", "1"), reads("x"))}},
		{"two orders of one list", "another order", []Txn{
			txn(0, 9, appends("x", "1")), txn(0, 9, appends("x", "2")), txn(10, 11, reads("x", "1", "2")), txn(10, 11, reads("x", "2"))}},
		{"one version for two values", "twice", []Txn{txn(0, 1, writes("x", "a", 5)), txn(2, 3, writes("x", "b", 5))}},
		{"two versions of one value", "at version", []Txn{txn(0, 1, writes("x", "a", 5)), txn(2, 3, sees("x", "a", 6))}},
		{"half of an unknown one", "G-single", []Txn{
			ended(unknown, txn(0, 0, appends("x", "1"), appends("y", "1"))), txn(2, 3, reads("x", "1"), reads("y")),
			txn(4, 5, reads("y", "1"))}},
		{"half of an unknown one, for ever", "G-single", []Txn{
			ended(unknown, txn(0, 0, appends("x", "1"), appends("y", "1"))), txn(2, 3, reads("x", "1"), reads("y"))}},
		{"lost update of a register", "G2", []Txn{
			txn(0, 1, writes("x", "a", 5)), txn(2, 9, sees("x", "a", 0), writes("x", "b", 0)),
			txn(2, 9, sees("x", "a", 0), writes("x", "c", 0))}},
		{"a committed write is lost", "real time", []Txn{
			txn(0, 1, writes("x", "a", 5)), txn(2, 3, sees("x", "a", 0), writes("x", "b", 0)), txn(4, 5, sees("x", "a", 5))}},
		{"a stale read of what was written by hand", "real time", []Txn{
			txn(0, 1, writes("x", "a", 5)), txn(2, 3, sees("x", "a", 0), writes("x", "b", 0)), txn(4, 5, writes("x", "c", 7)),
			txn(6, 7, sees("x", "b", 0))}},
		{"a first write is lost", "real time", []Txn{txn(0, 1, writes("x", "a", 0)), txn(2, 3, sees("x", "", 0))}},
		{"a replacement after its successor", "G", []Txn{
			txn(0, 1, writes("x", "a", 5)), txn(2, 3, writes("x", "c", 7)), txn(4, 5, sees("x", "a", 0), writes("x", "b", 0))}},
	}
	for _, c := range cases {
		said := strings.Join(judge(c.history), "\n")
		if !strings.Contains(said, c.says) {
			t.Errorf("%s: %q does not say %q", c.name, said, c.says)
		}
	}
}

// Programs of Redis are told no versions: the order of values comes from those who read one and replaced it.
func TestHistoriesOfRedis(t *testing.T) {
	first := txn(0, 1, writes("x", "a", 0), appends("l", "1"))
	loop := func(call int64, from, to string) Txn {
		return txn(call, call+1, sees("x", from, 0), writes("x", to, 0))
	}
	half := ended(unknown, txn(2, 0, writes("x", "u", 0), appends("l", "2")))
	cases := []struct {
		name, says string
		good, bad  []Txn
	}{
		{"WATCH is blind", "G",
			[]Txn{first, loop(2, "a", "b"), loop(4, "b", "c")}, []Txn{first, loop(2, "a", "b"), loop(4, "a", "c")}},
		{"EXEC is lost", "real time",
			[]Txn{first, loop(2, "a", "b"), txn(4, 5, sees("x", "b", 0))}, []Txn{first, loop(2, "a", "b"), txn(4, 5, sees("x", "a", 0))}},
		{"EXEC without a reply is seen by half", "G-single",
			[]Txn{first, half, txn(4, 5, reads("l", "1", "2"), sees("x", "u", 0))},
			[]Txn{first, half, loop(0, "a", "b"), txn(4, 5, reads("l", "1", "2"), sees("x", "a", 0))}},
		{"a refused EXEC is seen", "G1a",
			[]Txn{first, ended(notExecuted, loop(2, "a", "b")), txn(4, 5, sees("x", "a", 0))},
			[]Txn{first, ended(notExecuted, loop(2, "a", "b")), txn(4, 5, sees("x", "b", 0))}},
		{"APPEND is doubled", "twice",
			[]Txn{first, txn(2, 3, reads("l", "1"))}, []Txn{first, txn(2, 3, reads("l", "1", "1"))}},
	}
	for _, c := range cases {
		if said := judge(c.good); len(said) > 0 {
			t.Errorf("%s: the good one: %v", c.name, said)
		}
		if said := strings.Join(judge(c.bad), "\n"); !strings.Contains(said, c.says) {
			t.Errorf("%s: %q does not say %q", c.name, said, c.says)
		}
	}
}

func TestWhatIsAllowed(t *testing.T) {
	cases := map[string][]Txn{
		"unknown, and never seen": {ended(unknown, txn(0, 0, appends("x", "1"))), txn(2, 3, reads("x"))},
		"unknown, and seen late": {
			ended(unknown, txn(0, 0, appends("x", "1"))), txn(2, 3, reads("x")), txn(4, 5, reads("x", "1"))},
		"refused, and not there": {ended(notExecuted, txn(0, 1, appends("x", "1"))), txn(2, 3, reads("x"))},
		"read, then written": {
			txn(0, 1, writes("x", "a", 5)), txn(2, 9, sees("x", "a", 0), writes("x", "b", 0)), txn(10, 11, sees("x", "b", 6)),
			txn(2, 9, sees("x", "a", 5)), txn(12, 13, writes("x", "c", 7))},
		"at the same time":         {txn(0, 9, appends("x", "1")), txn(1, 2, reads("x")), txn(3, 4, reads("x", "1"))},
		"never read":               {txn(0, 1, appends("x", "1")), txn(2, 3, appends("x", "2"))},
		"blind writes by no order": {txn(0, 9, writes("x", "a", 0)), txn(0, 9, writes("x", "b", 0)), txn(10, 11, sees("x", "a", 0))},
	}
	for name, history := range cases {
		if problems := judge(history); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// Histories that were made in order are found to be in order, and with one read moved back they are not.
func TestSerialHistories(t *testing.T) {
	found := 0
	for seed := int64(0); seed < 200; seed++ {
		rng := rand.New(rand.NewSource(seed))
		lists, registers := map[string][]string{}, map[string]Op{}
		var history []Txn
		for n := 0; n < 60; n++ {
			at := int64(n * 10)
			// Calls and returns overlap with those of neighbours.
			t := txn(at-rng.Int63n(25), at+1+rng.Int63n(25))
			for _, k := range rng.Perm(4)[:1+rng.Intn(3)] {
				key, value := fmt.Sprint("list", k), fmt.Sprint(n)
				switch rng.Intn(4) {
				case 0:
					t.Ops = append(t.Ops, reads(key, append([]string{}, lists[key]...)...))
				case 1:
					t.Ops = append(t.Ops, appends(key, value))
					lists[key] = append(lists[key], value)
				case 2:
					key = fmt.Sprint("register", k)
					seen := registers[key]
					t.Ops = append(t.Ops, sees(key, seen.Value, seen.Version))
				default:
					key = fmt.Sprint("register", k)
					write := writes(key, value, uint64(n+1))
					if rng.Intn(2) == 0 { // by hand: neither version is told
						t.Ops = append(t.Ops, sees(key, registers[key].Value, 0))
						write.Version = 0
					}
					registers[key] = writes(key, value, uint64(n+1))
					t.Ops = append(t.Ops, write)
				}
			}
			if rng.Intn(10) == 0 {
				t.Outcome, t.Return = unknown, 0
			}
			history = append(history, t)
		}
		if problems := judge(history); len(problems) > 0 {
			t.Fatalf("seed %d: %v", seed, problems)
		}
		if spoil(history, rng) && len(judge(history)) > 0 {
			found++
		}
	}
	if found < 100 {
		t.Errorf("only %d of 200 spoilt histories were found", found)
	}
}

// spoil takes the last value from a read that ends long after the append had returned.
func spoil(history []Txn, rng *rand.Rand) bool {
	for _, n := range rng.Perm(len(history)) {
		for o, op := range history[n].Ops {
			if op.Op == "read" && len(op.Values) > 0 {
				last := op.Values[len(op.Values)-1]
				for _, t := range history[:n] {
					for _, a := range t.Ops {
						if a.Op == "append" && a.Key == op.Key && a.Value == last && t.Outcome == executed && t.Return < history[n].Call && history[n].Outcome == executed {
							history[n].Ops[o].Values = op.Values[:len(op.Values)-1]
							return true
						}
					}
				}
			}
		}
	}
	return false
}

func TestCommand(t *testing.T) {
	for text, code := range map[string]int{
		`{"client":1,"call":1,"return":2,"outcome":"executed","ops":[{"op":"append","key":"x","value":"1"}]}`:  codeSerializable,
		`{"client":1,"call":1,"return":2,"outcome":"executed","ops":[{"op":"read","key":"x","values":["1"]}]}`: codeViolated,
		`{"client":1,"call":1,"return":2,"outcome":"lost","ops":[]}`:                                           codeUnreadable,
		`{"client":1,"call":1,"return":0,"outcome":"executed","ops":[]}`:                                       codeUnreadable,
		`{"outcome":"executed","ops":[{"op":"pop"}]}`:                                                          codeUnreadable,
		`nonsense`: codeUnreadable,
		``:         codeUnreadable,
	} {
		var out strings.Builder
		if got := run(strings.NewReader(text), &out, &out); got != code {
			t.Errorf("%q: code %d, not %d: %s", text, got, code, out.String())
		}
	}
}
