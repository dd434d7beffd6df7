package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func verdict(t *testing.T, html, text string) (int, string) {
	t.Helper()
	records, err := read(strings.NewReader(strings.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return judge(records, html, time.Minute, &out), out.String()
}

// Each bad history is a good one with one answer changed: a judge that cannot fail judges nothing.
func TestGoodAndBadHistories(t *testing.T) {
	const (
		put     = `{"client":1,"model":"register","key":"r","op":"put","value":"a","call":1,"return":2,"outcome":"executed","got":"done","version":1}`
		replace = `{"client":1,"model":"register","key":"r","op":"put","value":"b","call":3,"return":4,"outcome":"executed","got":"done","version":2}`
		lost    = `{"client":1,"model":"register","key":"r","op":"put","value":"c","call":5,"return":0,"outcome":"unknown"}`
		one     = `{"client":1,"model":"counter","key":"c","op":"increment","delta":1,"call":1,"return":2,"outcome":"executed","got":"done","version":1,"sum":1}`
		two     = `{"client":1,"model":"counter","key":"c","op":"increment","delta":1,"call":3,"return":4,"outcome":"executed","got":"done","version":2,"sum":2}`
		once    = `{"client":1,"model":"counter","key":"o","op":"increment","delta":1,"once":"k","call":1,"return":2,"outcome":"executed","got":"done","version":1,"sum":1}`
		plain   = `{"client":2,"model":"counter","key":"o","op":"increment","delta":1,"call":3,"return":4,"outcome":"executed","got":"done","version":2,"sum":2}`
	)
	cases := []struct {
		name      string
		good, bad string
		before    []string
	}{
		{
			"a read is stale",
			`{"client":2,"model":"register","key":"r","op":"get","call":5,"return":6,"outcome":"executed","got":"found","text":"b","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"get","call":5,"return":6,"outcome":"executed","got":"found","text":"a","version":1}`,
			[]string{put, replace},
		}, {
			"a read has another version",
			`{"client":2,"model":"register","key":"r","op":"get","call":5,"return":6,"outcome":"executed","got":"found","text":"b","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"get","call":5,"return":6,"outcome":"executed","got":"found","text":"b","version":3}`,
			[]string{put, replace},
		}, {
			"an unknown put is read, and not unread again",
			`{"client":2,"model":"register","key":"r","op":"get","call":9,"return":10,"outcome":"executed","got":"found","text":"c","version":3}`,
			`{"client":2,"model":"register","key":"r","op":"get","call":9,"return":10,"outcome":"executed","got":"found","text":"b","version":2}`,
			[]string{put, replace, lost,
				`{"client":3,"model":"register","key":"r","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"c","version":3}`},
		}, {
			"a version does not grow",
			replace, strings.Replace(replace, `"version":2`, `"version":1`, 1),
			[]string{put},
		}, {
			"a condition holds for an older version",
			`{"client":2,"model":"register","key":"r","op":"put","if":"version","expected":2,"value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			`{"client":2,"model":"register","key":"r","op":"put","if":"version","expected":1,"value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			[]string{put, replace},
		}, {
			"a condition fails although it holds",
			`{"client":2,"model":"register","key":"r","op":"delete","if":"version","expected":1,"call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"delete","if":"version","expected":2,"call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			[]string{put, replace},
		}, {
			"a condition on version 0 holds where there is a key",
			`{"client":2,"model":"register","key":"r","op":"put","if":"version","expected":0,"value":"d","call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"put","if":"version","expected":0,"value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			[]string{put, replace},
		}, {
			"a key is put where there is one",
			`{"client":2,"model":"register","key":"r","op":"put","if":"absent","value":"d","call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"put","if":"absent","value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			[]string{put, replace},
		}, {
			"a value is put where another one was expected",
			`{"client":2,"model":"register","key":"r","op":"put","if":"value","expected_text":"a","value":"d","call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"put","if":"value","expected_text":"a","value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			[]string{put, replace},
		}, {
			"a value is not put where the expected one is",
			`{"client":2,"model":"register","key":"r","op":"put","if":"value","expected_text":"b","value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3}`,
			`{"client":2,"model":"register","key":"r","op":"put","if":"value","expected_text":"b","value":"d","call":5,"return":6,"outcome":"executed","got":"failed","version":2}`,
			[]string{put, replace},
		}, {
			"a put tells an older value than it replaced",
			`{"client":2,"model":"register","key":"r","op":"put","value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3,"was":"found","old_text":"b","old_version":2}`,
			`{"client":2,"model":"register","key":"r","op":"put","value":"d","call":5,"return":6,"outcome":"executed","got":"done","version":3,"was":"found","old_text":"a","old_version":1}`,
			[]string{put, replace},
		}, {
			"a put tells of no value where there is one",
			`{"client":1,"model":"register","key":"r","op":"put","value":"a","call":1,"return":2,"outcome":"executed","got":"done","version":1,"was":"absent"}`,
			`{"client":1,"model":"register","key":"r","op":"put","value":"d","call":1,"return":2,"outcome":"executed","got":"done","version":4,"was":"found","old_text":"a","old_version":1}`,
			nil,
		}, {
			"a delete tells another value than it deleted",
			`{"client":2,"model":"register","key":"r","op":"delete","call":5,"return":6,"outcome":"executed","got":"found","text":"b","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"delete","call":5,"return":6,"outcome":"executed","got":"found","text":"a","version":2}`,
			[]string{put, replace},
		}, {
			"what was deleted is read",
			`{"client":2,"model":"register","key":"r","op":"get","call":7,"return":8,"outcome":"executed","got":"absent"}`,
			`{"client":2,"model":"register","key":"r","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"b","version":2}`,
			[]string{put, replace,
				`{"client":1,"model":"register","key":"r","op":"delete","call":5,"return":6,"outcome":"executed","got":"done","version":2}`},
		}, {
			"what was not executed is read",
			`{"client":2,"model":"register","key":"r","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"b","version":2}`,
			`{"client":2,"model":"register","key":"r","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"n","version":3}`,
			[]string{put, replace,
				`{"client":1,"model":"register","key":"r","op":"put","value":"n","call":5,"return":6,"outcome":"not-executed"}`},
		}, {
			"a count is lost",
			two, strings.Replace(two, `"sum":2`, `"sum":1`, 1), []string{one},
		}, {
			"a count is doubled",
			two, strings.Replace(two, `"sum":2`, `"sum":3`, 1), []string{one},
		}, {
			"a count without an answer happens twice",
			`{"client":2,"model":"counter","key":"c","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"3","version":3}`,
			`{"client":2,"model":"counter","key":"c","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"4","version":4}`,
			[]string{one, two, `{"client":1,"model":"counter","key":"c","op":"increment","delta":1,"call":5,"return":0,"outcome":"unknown"}`},
		}, {
			"a read without an answer says nothing",
			`{"client":2,"model":"counter","key":"c","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"2","version":2}`,
			`{"client":2,"model":"counter","key":"c","op":"get","call":7,"return":8,"outcome":"executed","got":"found","text":"3","version":3}`,
			[]string{one, two, `{"client":1,"model":"counter","key":"c","op":"get","call":5,"return":0,"outcome":"unknown"}`},
		}, {
			"an operation key runs twice",
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":1,"once":"k","call":5,"return":6,"outcome":"executed","got":"done","version":1,"sum":1}`,
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":1,"once":"k","call":5,"return":6,"outcome":"executed","got":"done","version":3,"sum":3}`,
			[]string{once, plain},
		}, {
			"an operation key is told another version",
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":1,"once":"k","call":5,"return":6,"outcome":"executed","got":"done","version":1,"sum":1}`,
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":1,"once":"k","call":5,"return":6,"outcome":"executed","got":"done","version":2,"sum":1}`,
			[]string{once, plain},
		}, {
			"an operation key is used for something else",
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":2,"once":"k","call":5,"return":6,"outcome":"executed","got":"mismatch"}`,
			`{"client":2,"model":"counter","key":"o","op":"increment","delta":2,"once":"k","call":5,"return":6,"outcome":"executed","got":"done","version":3,"sum":4}`,
			[]string{once, plain},
		}, {
			"a mismatch with nothing",
			once, strings.Replace(once, `"done"`, `"mismatch"`, 1), nil,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := strings.Join(c.before, "\n") + "\n"
			if code, said := verdict(t, "", before+c.good); code != codeLinearizable {
				t.Errorf("the good one: %d\n%s", code, said)
			}
			html := filepath.Join(t.TempDir(), "bad.html")
			code, said := verdict(t, html, before+c.bad)
			if code != codeViolated || !strings.Contains(said, "NOT LINEARIZABLE") {
				t.Errorf("the bad one: %d\n%s", code, said)
			}
			if drawn, err := os.Stat(html); err != nil || drawn.Size() == 0 {
				t.Errorf("nothing is drawn: %v", err)
			}
		})
	}
}

func TestWhatCannotBeJudged(t *testing.T) {
	for _, bad := range []string{"{", `{"outcome":"maybe"}`, `{"outcome":"executed","call":2,"return":1}`} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	if code, _ := verdict(t, "", `{"model":"register","op":"put","outcome":"unknown"}`); code != codeUnreadable {
		t.Error("a history in which nothing was executed proves nothing")
	}
	if code, _ := verdict(t, "", `{"model":"queue","op":"put","outcome":"executed"}`); code != codeUnreadable {
		t.Error("there is no such model")
	}
}
