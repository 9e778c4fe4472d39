package kvqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestPayloadsThatAreNotTextAreBase64(t *testing.T) {
	for _, payload := range [][]byte{[]byte("\xef\xbb\xbfä<>"), {0xff, 0}, {}} {
		text, err := json.Marshal(NewItem{Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		if isText := bytes.Contains(text, []byte(`"payload":`)); isText != (len(payload) != 2) {
			t.Errorf("%s", text)
		}
		var item Item
		if err := json.Unmarshal(text, &item); err != nil || !bytes.Equal(item.Payload, payload) {
			t.Errorf("%q is %q, %v", payload, item.Payload, err)
		}
	}
}

func TestPayloadsThatAreNoBytesAreJSON(t *testing.T) {
	type mail struct {
		To   string `json:"to"`
		Line []int  `json:"line"`
	}
	for wanted, payload := range map[string]any{
		`{"to":"<ä>"}`:             map[string]string{"to": "<ä>"},
		`{"to":"ann","line":[1]}`:  mail{"ann", []int{1}},
		`{"to":"bob","line":null}`: &mail{To: "bob"},
		`[1,"a"]`:                  []any{1, "a"},
		`{"n": 1.0}`:               json.RawMessage(`{"n": 1.0}`),
		`text`:                     "text",
	} {
		text, err := json.Marshal(NewItem{Payload: payload})
		var item Item
		if err == nil {
			err = json.Unmarshal(text, &item)
		}
		if err != nil || string(item.Payload) != wanted {
			t.Errorf("%v is %q, not %q: %v", payload, item.Payload, wanted, err)
		}
	}
	for wanted, payload := range map[string]any{
		"the payload is a int;":              5,
		"the payload is a *kvqueue.NewItem;": (*NewItem)(nil),
		"as JSON":                            map[string]any{"f": func() {}},
	} {
		client, err := NewClient([]string{"http://127.0.0.1:1"}, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Push(context.Background(), "q", []NewItem{{Payload: payload}}, "k")
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%v: %v", payload, err)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for wanted, err := range map[string]error{
		`{"id":"a","outcome":"done"}`:                                                         nil,
		`{"id":"a","outcome":"release"}`:                                                      Release(),
		`{"id":"a","outcome":"dead","reason":"never"}`:                                        fmt.Errorf("it: %w", Dead("never")),
		`{"id":"a","outcome":"retry","reason":"x"}`:                                           errors.New("x"),
		`{"id":"a","outcome":"retry","reason":"x","after_ms":1500}`:                           RetryAfter(1500*time.Millisecond, "x"),
		`{"id":"a","outcome":"retry","reason":"x","after_ms":0}`:                              RetryAfter(-time.Second, "x"),
		`{"id":"a","outcome":"throttle","reason":"429","after_ms":86400000,"scope":"tenant"}`: Throttle("tenant", 99*time.Hour, "429"),
		`{"id":"a","outcome":"retry","reason":"` + long(999) + `"}`:                           Retry(long(999) + "ä"),
		`{"id":"a","outcome":"dead","reason":"` + long(longestReason) + `"}`:                  Dead(long(longestReason + 1)),
	} {
		if found, _ := json.Marshal(outcomeOf("a", err)); string(found) != wanted {
			t.Errorf("%v is %s, not %s", err, found, wanted)
		}
	}
}

func TestResults(t *testing.T) {
	for wanted, result := range map[string][]byte{
		`{"id":"a","outcome":"done"}`:                        nil,
		`{"id":"a","outcome":"done","result":""}`:            {},
		`{"id":"a","outcome":"done","result":"ä"}`:           []byte("ä"),
		`{"id":"a","outcome":"done","result_base64":"/wA="}`: {255, 0},
	} {
		outcome := outcomeOf("a", nil)
		outcome.setResult(result)
		if found, _ := json.Marshal(outcome); string(found) != wanted {
			t.Errorf("%q is %s, not %s", result, found, wanted)
		}
	}
}

func TestReportsOfProgressAreWhatADaemonAccepts(t *testing.T) {
	var item Item
	if err := json.Unmarshal([]byte(`{"id":"a","attempt":1}`), &item); err != nil {
		t.Fatal(err)
	}
	for wanted, report := range map[string]struct {
		percent float64
		message string
	}{
		`{"id":"a","percent":50.5,"message":"half"}`:            {50.5, "half"},
		`{"id":"a","percent":0}`:                                {0, ""},
		`{"id":"a","percent":100}`:                              {math.Inf(1), ""},
		`{"id":"a","message":"x"}`:                              {math.NaN(), "x"},
		`{"id":"a","message":"` + long(longestMessage-1) + `"}`: {-1, long(longestMessage-1) + "ä"},
		`{"id":"a","percent":1,"message":"\ufffd"}`:             {1, "\xff"},
	} {
		item.ReportProgress(report.percent, report.message)
		if found, _ := json.Marshal(item.news.report); string(found) != wanted {
			t.Errorf("%+v is %s, not %s", report, found, wanted)
		}
	}
}

func TestAnItemOfATestOfAHandlerNeedsNoWorker(t *testing.T) {
	item := &Item{ID: "a"}
	item.ReportProgress(50, "half")
	item.SetResult([]byte("x"))
	if item.IsCancelled() {
		t.Error("it is cancelled")
	}
}

func TestAViewOfAnItemHasItsBytes(t *testing.T) {
	text := `{"id":"a","state":"finished","outcome":"done","result_base64":"/wA=","payload":"ä","ended_at":"2030-01-31T08:00:00Z","more":1}`
	var item ItemView
	if err := json.Unmarshal([]byte(text), &item); err != nil {
		t.Fatal(err)
	}
	isWhole := string(item.Result) == "\xff\x00" && string(item.Payload) == "ä" && item.Key == nil && item.EndedAt.Year() == 2030
	if !isWhole || !item.HasEnded() || item.Outcome != "done" || string(item.Answer) != text {
		t.Errorf("%+v", item)
	}
}

type panicking struct{}

func (panicking) Error() string { panic("no text") }

func TestAnErrorWithoutTextIsARetry(t *testing.T) {
	if found := outcomeOf("a", panicking{}); found.Outcome != "retry" || found.Reason == "" {
		t.Errorf("%+v", found)
	}
}

func long(count int) string { return strings.Repeat("x", count) }

func TestPausesBeginWhenEachDaemonWasAsked(t *testing.T) {
	between := pauses{daemons: 2}
	for n := 0; n < 100; n++ {
		if pause := between.next(nil); (pause > 0) != (n%2 == 1) || pause > longestPause {
			t.Fatalf("pause %d is %s", n, pause)
		}
	}
	if pause := (&pauses{daemons: 1}).next(&APIError{Status: 429, RetryAfter: time.Hour}); pause != longestRetryAfter {
		t.Errorf("it pauses for %s", pause)
	}
}

func TestWrongConfigurationsAreErrors(t *testing.T) {
	for _, config := range []Config{
		{}, {URLs: []string{"127.0.0.1:7420"}}, {URLs: []string{"ftp://localhost"}},
		{URLs: []string{"http://localhost"}, Batch: 1001}, {URLs: []string{"http://localhost"}, Concurrency: -1},
	} {
		if err := Work(context.Background(), config, nil); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func TestAPushAsksTheNextDaemonIfTheCertificateOfTheFirstIsNotTrusted(t *testing.T) {
	asked := int64(0)
	answer := func(w http.ResponseWriter, _ *http.Request) {
		atomic.AddInt64(&asked, 1)
		fmt.Fprint(w, `{"pushed": 1}`)
	}
	untrusted, other := httptest.NewTLSServer(http.HandlerFunc(answer)), httptest.NewServer(http.HandlerFunc(answer))
	defer untrusted.Close()
	defer other.Close()
	client, err := NewClient([]string{untrusted.URL, other.URL}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if pushed, err := client.Push(context.Background(), "q", make([]NewItem, 1), ""); err != nil || pushed.Pushed != 1 || asked != 1 {
		t.Errorf("%+v, %v, %d requests", pushed, err, asked)
	}
}

// startDaemon starts a daemon. KVQUEUE names the program.
func startDaemon(t *testing.T) string {
	program := os.Getenv("KVQUEUE")
	if program == "" {
		t.Skip("KVQUEUE names no program")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	config := filepath.Join(t.TempDir(), "kvqueue.toml")
	text := fmt.Sprintf("database = \"embedded:%s/data\"\nhttp.listen = %q\nhttp.require-token = false\n[queues.work]\nhandler = \"pull\"\n", filepath.Dir(config), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process := exec.Command(program, "run", "--quiet", "--config", config)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	for n := 0; n < 300; n++ {
		if answer, err := http.Get("http://" + address + "/readyz"); err == nil {
			answer.Body.Close()
			return "http://" + address
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the daemon does not answer")
	return ""
}

func TestItemsAreHandledConcurrentlyUntilTheContextEnds(t *testing.T) {
	const count, concurrency = 1000, 16
	url := startDaemon(t)
	client, err := NewClient([]string{url}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Push(context.Background(), "work", make([]NewItem, count), ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var running, most, done int64
	err = Work(ctx, Config{URLs: []string{url}, Queue: "work", Concurrency: concurrency}, func(context.Context, *Item) error {
		now := atomic.AddInt64(&running, 1)
		for before := atomic.LoadInt64(&most); now > before && !atomic.CompareAndSwapInt64(&most, before, now); {
			before = atomic.LoadInt64(&most)
		}
		time.Sleep(time.Millisecond)
		atomic.AddInt64(&running, -1)
		if atomic.AddInt64(&done, 1) == count {
			cancel()
		}
		return nil
	})
	if err != nil || done != count || most > concurrency || most < 2 {
		t.Errorf("%d items are done, %d at a time, %v", done, most, err)
	}
	if left, err := client.Lease(context.Background(), "work", 1, 0, 0); err != nil || left.ID != "" {
		t.Errorf("%+v is left, %v", left, err)
	}
}
