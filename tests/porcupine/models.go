package main

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Record is one line of a history: one operation on one key, as its caller saw it. Times are nanoseconds of one
// monotonic clock.
type Record struct {
	Client int    `json:"client"`
	Model  string `json:"model"`
	Key    string `json:"key"`
	// get, put, put-if-version, put-if-absent, delete, delete-if-version, increment
	Op       string `json:"op"`
	Value    string `json:"value"`
	Expected uint64 `json:"expected"`
	Delta    int64  `json:"delta"`
	Once     string `json:"once"`

	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome string `json:"outcome"`

	// What the caller was told: done, found, absent, failed (the condition; Version 0: no such key), mismatch.
	Got     string `json:"got"`
	Version uint64 `json:"version"`
	Sum     int64  `json:"sum"`
	Text    string `json:"text"`
}

const (
	executed    = "executed"
	notExecuted = "not-executed"
	unknown     = "unknown"
)

// state is a key's. Versions only grow, by how much is not promised: after a change whose version nobody was told, the
// version is only known to be at least `version`.
type state struct {
	present bool
	text    string
	version uint64
	exact   bool
	// What operation keys have done, in order of their names, so that equal states are equal values.
	once string
}

func (s state) changed(told uint64, isTold bool) (bool, state) {
	floor := s.version
	if isTold {
		s.version, s.exact = told, true
		return told > floor, s
	}
	s.version, s.exact = floor+1, false
	return true, s
}

func (s state) holds(version uint64) bool {
	return s.present && (version == s.version || (!s.exact && version > s.version))
}

func (s state) bound(version uint64) (bool, state) {
	if !s.holds(version) {
		return false, s
	}
	s.version, s.exact = version, true
	return true, s
}

func (s state) put(text string, told uint64, isTold bool) (bool, state) {
	s.present, s.text = true, text
	return s.changed(told, isTold)
}

func (s state) remove() (bool, state) {
	s.present, s.text = false, ""
	return s.changed(0, false)
}

func stepRegister(s state, r Record) (bool, state) {
	isTold := r.Outcome == executed
	switch r.Op {
	case "get":
		return stepGet(s, r)
	case "put":
		return s.put(r.Value, r.Version, isTold)
	case "put-if-absent", "put-if-version", "delete-if-version":
		return stepConditional(s, r, isTold)
	case "delete":
		switch {
		case isTold && r.Got == "absent":
			return !s.present, s
		case isTold:
			fits, s := s.bound(r.Version)
			if !fits {
				return false, s
			}
			return s.remove()
		case s.present:
			return s.remove()
		default:
			return true, s
		}
	}
	panic("a register has no operation " + r.Op)
}

func stepGet(s state, r Record) (bool, state) {
	if r.Got == "absent" {
		return !s.present, s
	}
	if s.text != r.Text {
		return false, s
	}
	return s.bound(r.Version)
}

// A condition holds or not, as told. If nothing was told it may hold wherever the version is not known exactly; that it
// does not hold there is the same as never having run.
func stepConditional(s state, r Record, isTold bool) (bool, state) {
	met := func(s state) (bool, state) {
		// Version 0 stands for "no such key".
		if r.Op == "put-if-absent" || r.Expected == 0 {
			return !s.present, s
		}
		return s.bound(r.Expected)
	}
	change := func(s state) (bool, state) {
		if r.Op == "delete-if-version" {
			return s.remove()
		}
		return s.put(r.Value, r.Version, isTold)
	}
	switch {
	case isTold && r.Got == "failed" && r.Version == 0:
		return !s.present, s
	case isTold && r.Got == "failed":
		if r.Op != "put-if-absent" && r.Version == r.Expected {
			return false, s
		}
		return s.bound(r.Version)
	default:
		fits, then := met(s)
		if !fits {
			return !isTold, s
		}
		return change(then)
	}
}

// done is what an operation key did.
type done struct {
	name         string
	delta        int64
	sum          int64
	version      uint64
	versionKnown bool
}

func (s state) dones() []done {
	var list []done
	for _, item := range strings.Split(s.once, ";") {
		var d done
		if _, err := fmt.Sscanf(item, "%q %d %d %d %t", &d.name, &d.delta, &d.sum, &d.version, &d.versionKnown); err == nil {
			list = append(list, d)
		}
	}
	return list
}

func (s state) withDones(list []done) state {
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	var items []string
	for _, d := range list {
		items = append(items, fmt.Sprintf("%q %d %d %d %t", d.name, d.delta, d.sum, d.version, d.versionKnown))
	}
	s.once = strings.Join(items, ";")
	return s
}

func stepCounter(s state, r Record) (bool, state) {
	isTold := r.Outcome == executed
	switch r.Op {
	case "get":
		return stepGet(s, r)
	case "increment":
		if r.Once == "" {
			return stepIncrement(s, r, isTold)
		}
		return stepOnce(s, r, isTold)
	}
	panic("a counter has no operation " + r.Op)
}

func stepIncrement(s state, r Record, isTold bool) (bool, state) {
	var sum int64
	if s.present {
		fmt.Sscan(s.text, &sum)
	}
	sum += r.Delta
	if isTold && (r.Got != "done" || r.Sum != sum) {
		return false, s
	}
	return s.put(fmt.Sprint(sum), r.Version, isTold)
}

// The first request with an operation key runs; every later one is told what that one was told, or, where it asks for
// something else, that it does.
func stepOnce(s state, r Record, isTold bool) (bool, state) {
	list := s.dones()
	for i, d := range list {
		if d.name != r.Once {
			continue
		}
		if !isTold {
			return true, s
		}
		if d.delta != r.Delta {
			return r.Got == "mismatch", s
		}
		if r.Got != "done" || r.Sum != d.sum || (d.versionKnown && r.Version != d.version) {
			return false, s
		}
		list[i].version, list[i].versionKnown = r.Version, true
		return true, s.withDones(list)
	}
	fits, s := stepIncrement(s, r, isTold)
	if !fits {
		return false, s
	}
	var sum int64
	fmt.Sscan(s.text, &sum)
	d := done{name: r.Once, delta: r.Delta, sum: sum, version: r.Version, versionKnown: isTold}
	return true, s.withDones(append(list, d))
}

func model(name string) (porcupine.Model, error) {
	steps := map[string]func(state, Record) (bool, state){"register": stepRegister, "counter": stepCounter}
	step, isKnown := steps[name]
	if !isKnown {
		return porcupine.Model{}, fmt.Errorf("there is no model %q", name)
	}
	return porcupine.Model{
		Init: func() interface{} { return state{exact: true} },
		Step: func(s, input, _ interface{}) (bool, interface{}) {
			return step(s.(state), input.(Record))
		},
		DescribeOperation: func(input, _ interface{}) string { return describe(input.(Record)) },
		DescribeState:     func(s interface{}) string { return fmt.Sprintf("%+v", s) },
	}, nil
}

func describe(r Record) string {
	asked := r.Op
	switch {
	case r.Op == "increment":
		asked += fmt.Sprintf(" %d", r.Delta)
	case strings.HasPrefix(r.Op, "put"):
		asked += " " + r.Value
	}
	if strings.HasSuffix(r.Op, "-if-version") {
		asked += fmt.Sprintf(" if v%d", r.Expected)
	}
	if r.Once != "" {
		asked += " once " + r.Once
	}
	if r.Outcome == unknown {
		return asked + " → ?"
	}
	told := fmt.Sprintf("%s v%d", r.Got, r.Version)
	if r.Got == "found" {
		told += " " + r.Text
	}
	if r.Op == "increment" {
		told += fmt.Sprintf(" = %d", r.Sum)
	}
	return asked + " → " + told
}

// operations of one key, as porcupine wants them: what was not executed is not there, nor is a read without an answer, which
// says nothing; an update that is unknown may have happened at any time after it was asked for, also never.
func operations(records []Record) []porcupine.Operation {
	var list []porcupine.Operation
	for _, r := range records {
		if r.Outcome == notExecuted || (r.Outcome == unknown && r.Op == "get") {
			continue
		}
		operation := porcupine.Operation{ClientId: r.Client, Input: r, Output: r, Call: r.Call, Return: r.Return}
		if r.Outcome == unknown {
			operation.Return = math.MaxInt64
		}
		list = append(list, operation)
	}
	return list
}
