// Judges a history of transactions of Kasha's process tests: is there one order of all of them, in which every transaction sees
// what those before it wrote, and which none contradicts that had returned before another was called? It shares no code with
// Kasha. It infers from what was read which transaction must come before which (Adya's dependencies, and real time), as Elle does,
// and looks for circles. See docs/testing.md.
//
//	cycles HISTORY
//
// One transaction per line (JSON; see history.go). Exit codes: 0: strictly serializable; 1: not; 2: the history cannot be read.
package main

import (
	"fmt"
	"io"
	"os"
)

const (
	codeSerializable = 0
	codeViolated     = 1
	codeUnreadable   = 2
)

// Problems that are shown. The first few say it.
const shownMax = 5

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cycles HISTORY")
		os.Exit(codeUnreadable)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(codeUnreadable)
	}
	os.Exit(run(file, os.Stdout, os.Stderr))
}

func run(from io.Reader, out, complaints io.Writer) int {
	txns, err := read(from)
	if err != nil {
		fmt.Fprintln(complaints, err)
		return codeUnreadable
	}
	counts := map[string]int{}
	keys := map[string]bool{}
	for _, t := range txns {
		counts[t.Outcome]++
		for _, op := range t.Ops {
			keys[op.Key] = true
		}
	}
	fmt.Fprintf(out, "cycles: %d transactions on %d keys: %d executed, %d unknown, %d not executed\n",
		len(txns), len(keys), counts[executed], counts[unknown], counts[notExecuted])
	if counts[executed] == 0 {
		fmt.Fprintln(out, "cycles: nothing was executed, so there is nothing to judge")
		return codeUnreadable
	}
	problems := judge(txns)
	for n, problem := range problems {
		if n == shownMax {
			fmt.Fprintf(out, "cycles: and %d more\n", len(problems)-shownMax)
			break
		}
		fmt.Fprintln(out, "cycles: WRONG:", problem)
	}
	if len(problems) > 0 {
		return codeViolated
	}
	fmt.Fprintln(out, "cycles: strictly serializable")
	return codeSerializable
}
