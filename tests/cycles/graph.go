package main

import (
	"fmt"
	"sort"
	"strings"
)

// Kinds of edges: why one transaction comes before another in every order.
const (
	ww = iota // it wrote first
	wr        // its write was read
	rw        // it read what the other one replaced
	rt        // it had returned before the other one was called
)

var kindNames = [...]string{"ww", "wr", "rw", "realtime"}

type edge struct {
	to, kind int
	key      string
}

// graph has a node for each transaction, and behind them one for each return: what was called later comes after all that had
// returned, by a chain of these instead of an edge for each pair.
type graph struct {
	txns  []Txn
	edges [][]edge
}

func newGraph(txns []Txn) *graph {
	return &graph{txns: txns, edges: make([][]edge, len(txns))}
}

func (g *graph) add(from, to, kind int, key string) {
	if from != to {
		g.edges[from] = append(g.edges[from], edge{to, kind, key})
	}
}

// addRealTime adds the edges of real time. `counts`: which transactions took place.
func (g *graph) addRealTime(counts []bool) {
	var byReturn []int
	for i, t := range g.txns {
		if counts[i] && t.Outcome == executed {
			byReturn = append(byReturn, i)
		}
	}
	sort.Slice(byReturn, func(a, b int) bool { return g.txns[byReturn[a]].Return < g.txns[byReturn[b]].Return })
	first := len(g.edges)
	for n, i := range byReturn {
		g.edges = append(g.edges, nil)
		g.add(i, first+n, rt, "")
		if n > 0 {
			g.add(first+n-1, first+n, rt, "")
		}
	}
	for i, t := range g.txns {
		if !counts[i] {
			continue
		}
		before := sort.Search(len(byReturn), func(n int) bool { return g.txns[byReturn[n]].Return >= t.Call })
		if before > 0 {
			g.add(first+before-1, i, rt, "")
		}
	}
}

// components are the strongly connected ones with more than one node (Tarjan's algorithm, without recursion).
func (g *graph) components() [][]int {
	n := len(g.edges)
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	var stack []int
	var found [][]int
	next := 1
	type frame struct{ node, edge int }
	for root := 0; root < n; root++ {
		if index[root] != 0 {
			continue
		}
		frames := []frame{{root, 0}}
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.node
			if f.edge == 0 {
				index[v], low[v] = next, next
				next++
				stack = append(stack, v)
				onStack[v] = true
			}
			if f.edge < len(g.edges[v]) {
				w := g.edges[v][f.edge].to
				f.edge++
				if index[w] == 0 {
					frames = append(frames, frame{w, 0})
				} else if onStack[w] && index[w] < low[v] {
					low[v] = index[w]
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				if p := frames[len(frames)-1].node; low[v] < low[p] {
					low[p] = low[v]
				}
			}
			if low[v] == index[v] {
				var component []int
				for {
					w := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					onStack[w] = false
					component = append(component, w)
					if w == v {
						break
					}
				}
				if len(component) > 1 {
					found = append(found, component)
				}
			}
			// A frame without edges is entered once only, since it is popped here.
		}
	}
	return found
}

// cycle is a shortest one through some transaction of a component: its nodes, and the edge from each to the next.
func (g *graph) cycle(component []int) ([]int, []edge) {
	in := map[int]bool{}
	for _, v := range component {
		in[v] = true
	}
	var bestNodes []int
	var bestEdges []edge
	tried := 0
	for _, start := range component {
		if start >= len(g.txns) {
			continue
		}
		if tried++; tried > 200 { // of a large component some cycle is enough
			break
		}
		nodes, edges := g.cycleFrom(start, in)
		if nodes != nil && (bestNodes == nil || len(nodes) < len(bestNodes)) {
			bestNodes, bestEdges = nodes, edges
		}
	}
	return bestNodes, bestEdges
}

func (g *graph) cycleFrom(start int, in map[int]bool) ([]int, []edge) {
	type step struct {
		node int
		by   edge
	}
	came := map[int]step{}
	queue := []int{start}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range g.edges[v] {
			if e.to == start {
				nodes, edges := []int{v}, []edge{e}
				for v != start {
					s := came[v]
					nodes, edges = append(nodes, s.node), append(edges, s.by)
					v = s.node
				}
				for i, j := 0, len(nodes)-1; i < j; i, j = i+1, j-1 {
					nodes[i], nodes[j] = nodes[j], nodes[i]
					edges[i], edges[j] = edges[j], edges[i]
				}
				return nodes, edges
			}
			if _, seen := came[e.to]; in[e.to] && !seen {
				came[e.to] = step{v, e}
				queue = append(queue, e.to)
			}
		}
	}
	return nil, nil
}

// describe names the anomaly and its transactions, for people.
func (g *graph) describe(nodes []int, edges []edge) string {
	var out strings.Builder
	counts := [4]int{}
	for _, e := range edges {
		counts[e.kind]++
	}
	name := "G2 (write skew, or a longer one)"
	switch {
	case counts[rw] == 0 && counts[wr] == 0:
		name = "G0 (writes in two orders)"
	case counts[rw] == 0:
		name = "G1c (a circle of writes and reads)"
	case counts[rw] == 1:
		name = "G-single (read skew, or an update that was lost)"
	}
	if counts[rt] > 0 {
		name += ", by real time"
	}
	fmt.Fprintf(&out, "%s:\n", name)
	txnAfter := func(i int) int {
		for n := 1; n <= len(nodes); n++ {
			if v := nodes[(i+n)%len(nodes)]; v < len(g.txns) {
				return v
			}
		}
		return -1
	}
	for i, v := range nodes {
		if v < len(g.txns) {
			e := edges[i]
			fmt.Fprintf(&out, "  %s\n    before (%s %s) %s\n", g.show(v), kindNames[e.kind], e.key, g.name(txnAfter(i)))
		}
	}
	return out.String()
}

func (g *graph) name(v int) string {
	return fmt.Sprintf("line %d", v+1)
}

func (g *graph) show(v int) string {
	t := g.txns[v]
	var ops []string
	for _, op := range t.Ops {
		switch {
		case op.Op == "read" && op.Values != nil:
			last := op.Values
			if len(last) > 3 {
				last = last[len(last)-3:]
			}
			ops = append(ops, fmt.Sprintf("read %s: %d values, the last %v", op.Key, len(op.Values), last))
		default:
			ops = append(ops, fmt.Sprintf("%s %s %q @%d", op.Op, op.Key, op.Value, op.Version))
		}
	}
	return fmt.Sprintf("%s of client %d (%d to %d, %s): %s", g.name(v), t.Client, t.Call, t.Return, t.Outcome, strings.Join(ops, "; "))
}
