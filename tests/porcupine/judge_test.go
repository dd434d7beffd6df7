package main

import (
	"bytes"
	"fmt"
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

// What programs of Redis were told has no versions. Again each bad history is a good one with one answer changed.
func TestHistoriesOfRedis(t *testing.T) {
	line := func(call, returned int, op, key, rest string) string {
		outcome := "executed"
		if returned == 0 {
			outcome = "unknown"
		}
		return fmt.Sprintf(`{"client":1,"model":"redis","key":"%s","op":"%s","call":%d,"return":%d,"outcome":"%s",%s}`,
			key, op, call, returned, outcome, rest)
	}
	put := func(call int, value string) string {
		return line(call, call+1, "put", "r", `"got":"done","value":"`+value+`"`)
	}
	get := func(call int, text string) string {
		return line(call, call+1, "get", "r", `"got":"found","text":"`+text+`"`)
	}
	incr := func(call, sum int) string {
		return line(call, call+1, "increment", "c", fmt.Sprintf(`"got":"done","delta":1,"sum":%d`, sum))
	}
	count := func(call, number int) string {
		return line(call, call+1, "get", "c", fmt.Sprintf(`"got":"found","text":"%d"`, number))
	}
	absent := line(9, 10, "get", "r", `"got":"absent"`)
	unknownPut := line(3, 0, "put", "r", `"value":"u"`)
	unknownIncr := line(3, 0, "increment", "c", `"delta":1`)
	refused := strings.Replace(put(3, "n"), `"executed"`, `"not-executed"`, 1)
	cases := []struct {
		name      string
		good, bad string
		before    []string
	}{
		{"a read is stale", get(9, "b"), get(9, "a"), []string{put(1, "a"), put(3, "b")}},
		{"a write is lost", get(9, "a"), absent, []string{put(1, "a")}},
		{"an unknown write is read, and not unread again", get(9, "u"), get(9, "a"), []string{put(1, "a"), unknownPut, get(5, "u")}},
		{"an unknown write happens late, and once", get(9, "u"), get(9, "x"), []string{put(1, "a"), unknownPut, get(5, "a")}},
		{"what was refused is read", get(9, "a"), get(9, "n"), []string{put(1, "a"), refused}},
		{"a replaced value is told",
			line(5, 6, "put", "r", `"got":"done","value":"c","was":"found","old_text":"b"`),
			line(5, 6, "put", "r", `"got":"done","value":"c","was":"found","old_text":"a"`), []string{put(1, "a"), put(3, "b")}},
		{"no value was replaced",
			line(1, 2, "put", "r", `"got":"done","value":"c","was":"absent"`),
			line(5, 6, "put", "r", `"got":"done","value":"c","was":"absent"`), []string{put(3, "b")}},
		{"a key is put where there is one",
			line(5, 6, "put", "r", `"if":"absent","got":"failed","value":"c"`),
			line(5, 6, "put", "r", `"if":"absent","got":"done","value":"c"`), []string{put(1, "a")}},
		{"a key is not put where there is none",
			line(1, 2, "put", "r", `"if":"absent","got":"done","value":"c"`),
			line(1, 2, "put", "r", `"if":"absent","got":"failed","value":"c"`), []string{put(3, "a")}},
		{"a delete deletes",
			line(5, 6, "delete", "r", `"got":"done"`), line(5, 6, "delete", "r", `"got":"absent"`), []string{put(1, "a")}},
		{"a deleted value is told",
			line(5, 6, "delete", "r", `"got":"found","text":"a"`), line(5, 6, "delete", "r", `"got":"found","text":"b"`),
			[]string{put(1, "a"), absent}},
		{"what was deleted is read", absent, get(9, "a"), []string{put(1, "a"), line(5, 6, "delete", "r", `"got":"done"`)}},
		{"a count is lost", incr(9, 2), incr(9, 1), []string{incr(1, 1)}},
		{"a count is doubled", incr(9, 2), incr(9, 3), []string{incr(1, 1)}},
		{"a repeated count counts twice", count(9, 2), count(9, 3), []string{incr(1, 1), unknownIncr}},
		{"an unknown count stays", count(9, 2), count(9, 1), []string{incr(1, 1), unknownIncr, count(5, 2)}},
		{"a read without an answer says nothing", count(9, 1), count(9, 2), []string{incr(1, 1), line(3, 0, "get", "c", `"text":"7"`)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := strings.Join(c.before, "\n") + "\n"
			if code, said := verdict(t, "", before+c.good); code != codeLinearizable {
				t.Errorf("the good one: %d\n%s", code, said)
			}
			if code, said := verdict(t, "", before+c.bad); code != codeViolated {
				t.Errorf("the bad one: %d\n%s", code, said)
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
