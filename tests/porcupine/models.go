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
	// get, put, delete, increment
	Op    string `json:"op"`
	Value string `json:"value"`
	// The condition of a put or of a delete: none, "absent", "version" (Expected; 0 is "absent") or "value" (ExpectedText).
	If           string `json:"if"`
	Expected     uint64 `json:"expected"`
	ExpectedText string `json:"expected_text"`
	Delta        int64  `json:"delta"`
	Once         string `json:"once"`

	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome string `json:"outcome"`

	// What the caller was told: done, found, absent, failed (the condition; Version 0: no such key), mismatch. A delete
	// that returns the deleted value has "found".
	Got     string `json:"got"`
	Version uint64 `json:"version"`
	Sum     int64  `json:"sum"`
	Text    string `json:"text"`
	// What a put was told of the value that it replaced: nothing, "absent" or "found" (OldText, OldVersion).
	Was        string `json:"was"`
	OldText    string `json:"old_text"`
	OldVersion uint64 `json:"old_version"`
}

const (
	executed    = "executed"
	notExecuted = "not-executed"
	unknown     = "unknown"
)

// state is the state of one key. Versions only grow, and nothing is promised about by how much. After a change whose
// version nobody was told, the version is only known to be at least `version`.
type state struct {
	present bool
	text    string
	version uint64
	exact   bool
	// The effects of operation keys, in order of their names, so that equal states are equal values.
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
	if r.Op == "get" {
		return stepGet(s, r)
	}
	if isTold && r.Got == "failed" {
		return stepFailed(s, r)
	}
	// If the caller was told nothing, the condition may hold wherever the version is not known exactly. If it does not hold
	// there, that is the same as an update that never ran.
	holds, met := condition(s, r)
	if !holds {
		return !isTold, s
	}
	switch r.Op {
	case "put":
		return stepPut(met, r, isTold)
	case "delete":
		return stepDelete(met, r, isTold)
	}
	panic("a register has no operation " + r.Op)
}

func condition(s state, r Record) (bool, state) {
	switch {
	case r.If == "":
		return true, s
	case r.If == "absent" || r.If == "version" && r.Expected == 0:
		return !s.present, s
	case r.If == "version":
		return s.bound(r.Expected)
	case r.If == "value":
		return s.present && s.text == r.ExpectedText, s
	}
	panic("there is no condition " + r.If)
}

// If the caller was told that the condition failed, the condition cannot have held.
func stepFailed(s state, r Record) (bool, state) {
	if r.Version == 0 {
		return !s.present && r.If != "absent" && !(r.Op == "put" && r.If == "version" && r.Expected == 0), s
	}
	switch r.If {
	case "version":
		if r.Version == r.Expected {
			return false, s
		}
	case "value":
		if s.text == r.ExpectedText {
			return false, s
		}
	}
	return s.bound(r.Version)
}

func stepPut(s state, r Record, isTold bool) (bool, state) {
	if isTold {
		switch r.Was {
		case "absent":
			if s.present {
				return false, s
			}
		case "found":
			fits, bound := s.bound(r.OldVersion)
			if !fits || s.text != r.OldText {
				return false, s
			}
			s = bound
		}
	}
	return s.put(r.Value, r.Version, isTold)
}

func stepDelete(s state, r Record, isTold bool) (bool, state) {
	switch {
	case isTold && r.Got == "absent":
		return !s.present, s
	case isTold:
		fits, s := s.bound(r.Version)
		if !fits || r.Got == "found" && s.text != r.Text {
			return false, s
		}
		return s.remove()
	case s.present:
		return s.remove()
	default:
		return true, s
	}
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

// done is the effect of an operation key.
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
	sum := s.number() + r.Delta
	if isTold && (r.Got != "done" || r.Sum != sum) {
		return false, s
	}
	return s.put(fmt.Sprint(sum), r.Version, isTold)
}

// The first request with an operation key runs. Every later request with the same content gets the same answer, and every
// other request is told that it differs.
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

// stepRedis is a key of the Redis protocol, in which nobody is told a version.
func stepRedis(s state, r Record) (bool, state) {
	isTold := r.Outcome == executed
	switch r.Op {
	case "get":
		return s.present == (r.Got == "found") && s.text == r.Text, s
	case "put":
		if r.If == "absent" && s.present {
			return !isTold || r.Got == "failed", s
		}
		if isTold && (r.Got != "done" || !s.was(r)) {
			return false, s
		}
		s.present, s.text = true, r.Value
		return true, s
	case "delete":
		if isTold && (s.present == (r.Got == "absent") || r.Got == "found" && s.text != r.Text) {
			return false, s
		}
		s.present, s.text = false, ""
		return true, s
	case "increment":
		sum := s.number() + r.Delta
		if isTold && (r.Got != "done" || r.Sum != sum) {
			return false, s
		}
		s.present, s.text = true, fmt.Sprint(sum)
		return true, s
	}
	panic("a key of Redis has no operation " + r.Op)
}

// was says whether the replaced value is what the caller of a put was told of it.
func (s state) was(r Record) bool {
	switch r.Was {
	case "absent":
		return !s.present
	case "found":
		return s.present && s.text == r.OldText
	}
	return true
}

func (s state) number() int64 {
	var number int64
	if s.present {
		fmt.Sscan(s.text, &number)
	}
	return number
}

func model(name string) (porcupine.Model, error) {
	steps := map[string]func(state, Record) (bool, state){
		"register": stepRegister, "counter": stepCounter, "redis": stepRedis, "redis-counter": stepRedis,
	}
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
	case r.Op == "put":
		asked += " " + r.Value
	}
	switch r.If {
	case "absent":
		asked += " if absent"
	case "version":
		asked += fmt.Sprintf(" if v%d", r.Expected)
	case "value":
		asked += " if " + r.ExpectedText
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
	if r.Was != "" {
		told += fmt.Sprintf(", was %s v%d %s", r.Was, r.OldVersion, r.OldText)
	}
	if r.Op == "increment" {
		told += fmt.Sprintf(" = %d", r.Sum)
	}
	return asked + " → " + told
}

// operations returns the operations of one key in porcupine's form. Operations that were not executed are left out, and so
// are reads without an answer, which say nothing. An unknown update may have happened at any time after it was asked for,
// or never.
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
