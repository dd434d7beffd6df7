// Judges a history of Kasha's process tests. It reads one operation per line (JSON), and asks porcupine whether the
// operations of each key have a linear order in which every answer is right. See docs/testing.md.
//
//	porcupine [-html FILE] [-patience 60s] HISTORY
//
// Exit codes: 0: linearizable; 1: not linearizable (the HTML shows the first such key); 2: the history cannot be read;
// 3: not decided in time.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	codeLinearizable = 0
	codeViolated     = 1
	codeUnreadable   = 2
	codeUndecided    = 3
)

func main() {
	html := flag.String("html", "", "where to draw the first key that has no linear order")
	patience := flag.Duration("patience", time.Minute, "how long one key may take")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: porcupine [-html FILE] [-patience 60s] HISTORY")
		os.Exit(codeUnreadable)
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(codeUnreadable)
	}
	records, err := read(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(codeUnreadable)
	}
	os.Exit(judge(records, *html, *patience, os.Stdout))
}

func read(from io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(records)+1, err)
		}
		switch r.Outcome {
		case executed, notExecuted, unknown:
		default:
			return nil, fmt.Errorf("line %d: there is no outcome %q", len(records)+1, r.Outcome)
		}
		if r.Outcome == executed && r.Return < r.Call {
			return nil, fmt.Errorf("line %d: it returns before it is called", len(records)+1)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

// judge prints the verdict on `out` and returns the exit code. An empty history proves nothing, so it counts as unreadable.
func judge(records []Record, html string, patience time.Duration, out io.Writer) int {
	type key struct{ model, key string }
	byKey := map[key][]Record{}
	counts := map[string]int{}
	for _, r := range records {
		k := key{r.Model, r.Key}
		byKey[k] = append(byKey[k], r)
		counts[r.Outcome]++
	}
	var keys []key
	for k := range byKey {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].key < keys[j].key })
	fmt.Fprintf(out, "porcupine: %d operations on %d keys: %d executed, %d unknown, %d not executed\n",
		len(records), len(keys), counts[executed], counts[unknown], counts[notExecuted])
	if counts[executed] == 0 {
		fmt.Fprintln(out, "porcupine: nothing was executed, so there is nothing to judge")
		return codeUnreadable
	}
	violated, undecided := 0, 0
	for _, k := range keys {
		m, err := model(k.model)
		if err != nil {
			fmt.Fprintln(out, "porcupine:", err)
			return codeUnreadable
		}
		history := operations(byKey[k])
		switch porcupine.CheckOperationsTimeout(m, history, patience) {
		case porcupine.Ok:
		case porcupine.Unknown:
			undecided++
			fmt.Fprintf(out, "porcupine: UNDECIDED: %s %s, %d operations\n", k.model, k.key, len(history))
		case porcupine.Illegal:
			violated++
			fmt.Fprintf(out, "porcupine: NOT LINEARIZABLE: %s %s, %d operations\n", k.model, k.key, len(history))
			if violated == 1 && html != "" {
				_, info := porcupine.CheckOperationsVerbose(m, history, patience)
				if err := porcupine.VisualizePath(m, info, html); err != nil {
					fmt.Fprintln(out, "porcupine: no drawing:", err)
				} else {
					fmt.Fprintln(out, "porcupine: drawn in", html)
				}
			}
		}
	}
	switch {
	case violated > 0:
		fmt.Fprintf(out, "porcupine: %d keys have no linear order\n", violated)
		return codeViolated
	case undecided > 0:
		fmt.Fprintf(out, "porcupine: %d keys are not decided\n", undecided)
		return codeUndecided
	}
	fmt.Fprintln(out, "porcupine: linearizable")
	return codeLinearizable
}
