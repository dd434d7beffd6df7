package main

import (
	"fmt"
	"sort"
)

// A judgement collects what is wrong.
type judgement struct {
	txns     []Txn
	problems []string
	// Which transactions took place: those that were executed, and those of unknown outcome whose writes somebody has read.
	counts []bool
}

func (j *judgement) wrong(format string, arguments ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, arguments...))
}

// What one key's steps are, by transaction.
type keyed struct {
	isList bool
	// Who wrote or appended a value.
	writer map[string]int
	// The values of each transaction, in its order.
	written map[int][]string
	// What the reads of each transaction saw of others: a list, or a value.
	reads map[int][]Op
	// The longest list that anybody has read.
	longest []string
	// The version of each value, as far as known.
	versions map[string]uint64
}

// judge says what is wrong with a history: an empty list means that it is strictly serializable.
func judge(txns []Txn) []string {
	j := &judgement{txns: txns, counts: make([]bool, len(txns))}
	keys := j.byKey()
	for i, t := range txns {
		j.counts[i] = t.Outcome == executed
	}
	var names []string
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		j.observe(name, keys[name])
	}
	g := newGraph(txns)
	for _, name := range names {
		if keys[name].isList {
			j.orderList(g, name, keys[name])
		} else {
			j.orderRegister(g, name, keys[name])
		}
	}
	g.addRealTime(j.counts)
	for _, component := range g.components() {
		if nodes, edges := g.cycle(component); nodes != nil {
			j.wrong("%d transactions have no order. A shortest circle is %s", len(component), g.describe(nodes, edges))
		}
	}
	return j.problems
}

func (j *judgement) byKey() map[string]*keyed {
	keys := map[string]*keyed{}
	for i, t := range j.txns {
		for _, op := range t.Ops {
			k := keys[op.Key]
			if k == nil {
				k = &keyed{writer: map[string]int{}, written: map[int][]string{}, reads: map[int][]Op{}, versions: map[string]uint64{}}
				keys[op.Key] = k
			}
			if op.Op == "append" || op.Values != nil {
				k.isList = true
			}
			if op.Op == "read" {
				if t.Outcome == executed {
					j.take(i, op, k)
				}
				continue
			}
			if other, taken := k.writer[op.Value]; taken {
				j.wrong("line %d writes %q to %s, which line %d writes too: the history is none", i+1, op.Value, op.Key, other+1)
			}
			k.writer[op.Value] = i
			k.written[i] = append(k.written[i], op.Value)
			if op.Op == "write" && op.Version > 0 && t.Outcome == executed {
				k.versions[op.Value] = op.Version
			}
		}
	}
	return keys
}

// take notes a read, and checks it against what the transaction itself wrote before.
func (j *judgement) take(i int, op Op, k *keyed) {
	own := k.written[i]
	switch {
	case len(own) == 0:
	case !k.isList:
		if op.Value != own[len(own)-1] {
			j.wrong("line %d reads %q in %s, not its own %q", i+1, op.Value, op.Key, own[len(own)-1])
		}
		return
	default:
		before := len(op.Values) - len(own)
		if before < 0 || !equal(op.Values[before:], own) {
			j.wrong("line %d does not read its own values %v at the end of %s: %v", i+1, own, op.Key, op.Values)
			return
		}
		if len(op.Values) > len(k.longest) {
			k.longest = op.Values
		}
		op.Values = op.Values[:before]
	}
	for _, earlier := range k.reads[i] {
		if earlier.Value != op.Value || !equal(earlier.Values, op.Values) {
			j.wrong("line %d reads %s twice, differently: %v %q, %v %q", i+1, op.Key, earlier.Values, earlier.Value, op.Values, op.Value)
		}
	}
	k.reads[i] = append(k.reads[i], op)
	if len(op.Values) > len(k.longest) {
		k.longest = op.Values
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// seen finds who wrote what was read: somebody must have, and not in vain.
func (j *judgement) seen(name, value string, k *keyed) (int, bool) {
	by, known := k.writer[value]
	switch {
	case !known:
		j.wrong("%s holds %q, which nobody wrote", name, value)
	case j.txns[by].Outcome == notExecuted:
		j.wrong("%s holds %q of line %d, which was told that nothing happened (G1a)", name, value, by+1)
	default:
		j.counts[by] = true
		return by, true
	}
	return 0, false
}

func (j *judgement) observe(name string, k *keyed) {
	if k.isList {
		at := map[string]bool{}
		for _, value := range k.longest {
			j.seen(name, value, k)
			if at[value] {
				j.wrong("%s holds %q twice: an update was doubled", name, value)
			}
			at[value] = true
		}
		return
	}
	for _, reads := range k.reads {
		for _, op := range reads {
			if op.Value == "" {
				continue
			}
			if _, ok := j.seen(name, op.Value, k); !ok || op.Version == 0 {
				continue
			}
			if known := k.versions[op.Value]; known != 0 && known != op.Version {
				j.wrong("%s has %q at version %d, and at version %d", name, op.Value, known, op.Version)
			}
			k.versions[op.Value] = op.Version
		}
	}
}

// orderList: the longest list that was read is the order of the appends in it; all others come later.
func (j *judgement) orderList(g *graph, name string, k *keyed) {
	order := k.longest
	place := map[string]int{}
	for n, value := range order {
		place[value] = n
	}
	writer := func(n int) (int, bool) {
		by, known := k.writer[order[n]]
		return by, known && j.counts[by]
	}
	for n := 1; n < len(order); n++ {
		a, ok := writer(n - 1)
		b, also := writer(n)
		if ok && also {
			g.add(a, b, ww, name)
		}
	}
	// The values of one transaction stand together, in its order.
	for i, values := range k.written {
		if !j.counts[i] {
			continue
		}
		first, placed := place[values[0]]
		for n, value := range values {
			if at, is := place[value]; is != placed || is && at != first+n {
				j.wrong("%s holds the values %v of line %d apart, or not all of them: %v", name, values, i+1, order)
				break
			}
		}
	}
	var later []int
	for i, values := range k.written {
		if _, placed := place[values[0]]; !placed && j.counts[i] {
			later = append(later, i)
			if len(order) > 0 {
				if last, ok := writer(len(order) - 1); ok {
					g.add(last, i, ww, name)
				}
			}
		}
	}
	for i, reads := range k.reads {
		for _, op := range reads {
			n := len(op.Values)
			if n > len(order) || !equal(op.Values, order[:n]) {
				j.wrong("line %d reads %s in another order than somebody else: %v, not %v", i+1, name, op.Values, order)
				continue
			}
			if n > 0 {
				if by, ok := writer(n - 1); ok {
					if own := k.written[by]; own[len(own)-1] != order[n-1] {
						j.wrong("line %d reads %s in the middle of line %d (G1b)", i+1, name, by+1)
					}
					g.add(by, i, wr, name)
				}
			}
			if n < len(order) {
				if by, ok := writer(n); ok {
					g.add(i, by, rw, name)
				}
				continue
			}
			for _, by := range later {
				g.add(i, by, rw, name)
			}
		}
	}
}

// A place of a write in the order of a key: behind a version that somebody was told, so many writes further on.
type place struct {
	version uint64
	behind  int
}

func (p place) less(other place) bool {
	return p.version < other.version || p.version == other.version && p.behind < other.behind
}

// orderRegister: versions are the order of the writes, as far as somebody was told them. Who reads a value and writes the key comes
// right behind that value.
func (j *judgement) orderRegister(g *graph, name string, k *keyed) {
	replacers := map[string][]int{}
	for i, reads := range k.reads {
		if _, writes := k.written[i]; writes && j.counts[i] {
			for _, op := range reads {
				replacers[op.Value] = append(replacers[op.Value], i)
			}
		}
	}
	places := map[string]place{"": {}}
	known := []string{""}
	for value, version := range k.versions {
		if by, is := k.writer[value]; is && j.counts[by] {
			places[value] = place{version, 0}
			known = append(known, value)
		}
	}
	for n := 0; n < len(known); n++ {
		for _, by := range replacers[known[n]] {
			last := k.written[by][len(k.written[by])-1]
			if _, is := places[last]; !is {
				at := places[known[n]]
				places[last] = place{at.version, at.behind + 1}
				known = append(known, last)
			}
		}
	}
	type write struct {
		at place
		by int
	}
	var order []write
	for value, at := range places {
		if value != "" {
			order = append(order, write{at, k.writer[value]})
		}
	}
	sort.Slice(order, func(a, b int) bool {
		return order[a].at.less(order[b].at) || order[a].at == order[b].at && order[a].by < order[b].by
	})
	for n := 1; n < len(order); n++ {
		if order[n-1].at != order[n].at {
			g.add(order[n-1].by, order[n].by, ww, name)
		} else if order[n].at.behind == 0 {
			j.wrong("%s has version %d twice: of line %d and of line %d", name, order[n].at.version, order[n-1].by+1, order[n].by+1)
		}
	}
	for i, reads := range k.reads {
		for _, op := range reads {
			for _, by := range replacers[op.Value] {
				g.add(i, by, rw, name)
			}
			if op.Value == "" {
				// Nothing is ever deleted: every write comes later.
				for by := range k.written {
					if j.counts[by] {
						g.add(i, by, rw, name)
					}
				}
				continue
			}
			if by, is := k.writer[op.Value]; is {
				g.add(by, i, wr, name)
			}
			at, is := places[op.Value]
			if !is {
				continue // nobody knows its place
			}
			next := sort.Search(len(order), func(n int) bool { return at.less(order[n].at) })
			for n := next; n < len(order) && order[n].at == order[next].at; n++ {
				g.add(i, order[n].by, rw, name)
			}
		}
	}
}
