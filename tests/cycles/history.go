package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// How a transaction ended for its caller.
const (
	executed    = "executed"
	notExecuted = "not-executed"
	unknown     = "unknown"
)

// Op is one step of a transaction.
//
//	append: Value joins the end of the list in Key. Nobody appends the same value to a key again.
//	write:  Key gets Value, and this Version, if the caller was told one. Nobody writes the same value to a key again.
//	read:   of a list, Values; of another key, Value and Version. Version 0 of a key without Value: the key has no value.
type Op struct {
	Op      string   `json:"op"`
	Key     string   `json:"key"`
	Value   string   `json:"value"`
	Version uint64   `json:"version"`
	Values  []string `json:"values"`
}

// Txn is a transaction, with the moments at which its caller began and was told the outcome.
type Txn struct {
	Client  int    `json:"client"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome string `json:"outcome"`
	Ops     []Op   `json:"ops"`
}

// read takes one transaction from each line.
func read(from io.Reader) ([]Txn, error) {
	var txns []Txn
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var t Txn
		at := len(txns) + 1
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		switch t.Outcome {
		case executed, notExecuted, unknown:
		default:
			return nil, fmt.Errorf("line %d: there is no outcome %q", at, t.Outcome)
		}
		if t.Outcome == executed && t.Return < t.Call {
			return nil, fmt.Errorf("line %d: it returns before it is called", at)
		}
		for _, op := range t.Ops {
			if op.Op != "append" && op.Op != "write" && op.Op != "read" {
				return nil, fmt.Errorf("line %d: there is no step %q", at, op.Op)
			}
		}
		txns = append(txns, t)
	}
	return txns, lines.Err()
}
