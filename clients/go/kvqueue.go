// Package kvqueue has workers and pushes for kvqueue over HTTP: one file, no dependencies, Go 1.19 and later.
//
//	err := kvqueue.Work(ctx, kvqueue.Config{URLs: []string{"http://127.0.0.1:7420"}, Queue: "emails"},
//		func(ctx context.Context, item *kvqueue.Item) error {
//			fmt.Println(string(item.Payload))
//			return nil
//		})
//
// docs/clients/go.md of kvqueue is the page about it.
package kvqueue

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// How long a daemon may take to accept a connection, and to answer a request.
	connectTimeout, requestTimeout = 5 * time.Second, 30 * time.Second
	// How long a daemon may take to answer a push that is repeated, so that the next one is asked in time.
	pushTimeout = 10 * time.Second
	// The first and the longest pause after failures; the longest pause that a daemon may ask for.
	firstPause, longestPause, longestRetryAfter = 100 * time.Millisecond, 10 * time.Second, time.Minute
	// The pause after an answer that had no items and did not wait for them, as those of a daemon that stops.
	emptyPause = time.Second
	// How long outcomes wait for others of their lease, so that one request acknowledges them together.
	linger = 50 * time.Millisecond
	// A worker leases items ahead: as many as it handles in this time, by the average of the last ones.
	ahead = time.Second
	// Items that were leased ahead go back if their handling has not begun by then.
	stuck = 5 * time.Second
	// The most requests at a time that acknowledge and extend leases.
	mostRequests = 8
	// The most outcomes in one request, so that their reasons fit into it, and the most bytes of their results.
	mostOutcomes, mostResults = 100, 500_000
	// The longest result in bytes.
	longestResult = 90_000
	// The most reports of progress in one request, so that they fit into it, and the longest message in bytes.
	mostReports, longestMessage = 40, 200
	// How long one request waits for the end of an item.
	itemWait = 20 * time.Second
	// The most finished items that wait for their acknowledgement. With more, nothing is leased.
	unacknowledged = 1000
	// How long a worker that stops tries to acknowledge.
	stopPatience = 30 * time.Second
	// The longest pause between its attempts then.
	stopPause = time.Second
	// The longest answer and the longest reason in bytes.
	longestAnswer, longestReason = 256 << 20, 1000
	// The longest pause before a retry: a year.
	longestAfter = 365 * 24 * time.Hour
	// The longest time of a throttle.
	longestThrottle = 24 * time.Hour
)

// userAgent is what a daemon shows of this worker, in ASCII.
var userAgent = func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "?"
	}
	isOther := func(r rune) rune {
		if r < '!' || r > '~' {
			return '?'
		}
		return r
	}
	return fmt.Sprintf("kvqueue-go/0.1.0 %s/%d", strings.Map(isOther, host), os.Getpid())
}()

// APIError is the error of a request that a daemon refused. Code is one of the table in docs/API.md.
type APIError struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration
}

func (e *APIError) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, e.Code) }

// isTemporary reports whether another attempt, or another daemon, may help.
func isTemporary(err error) bool {
	var invalid *invalidError
	if errors.As(err, &invalid) {
		return false
	}
	var refused *APIError
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusForbidden:
			// A daemon may be read-only, and a proxy may refuse requests; another one need not.
			return !isDenied(err)
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return refused.Status >= 500
	}
	return true
}

func isLost(err error) bool {
	var refused *APIError
	return errors.As(err, &refused) && refused.Code == "lease_lost"
}

func isTooLarge(err error) bool {
	var refused *APIError
	return errors.As(err, &refused) && refused.Status == http.StatusRequestEntityTooLarge
}

// isDenied reports whether the access token does not let this worker do so.
func isDenied(err error) bool {
	var refused *APIError
	return errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Code == "forbidden")
}

// unsentError is that of a request without a connection, such as one whose TLS handshake has failed.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// invalidError is that of a request that cannot be made of what the program has given.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

// isUnsent reports whether the daemon certainly did not do what was asked: there is no connection, or it
// refused the request or was too busy.
func isUnsent(err error) bool {
	var unsent *unsentError
	if errors.As(err, &unsent) {
		return true
	}
	var refused *APIError
	return errors.As(err, &refused) && (refused.Status == http.StatusForbidden || refused.Status == http.StatusTooManyRequests)
}

// Item is an item to be handled.
type Item struct {
	ID          string
	Attempt     int
	Payload     []byte
	Attributes  map[string]string
	ContentType string
	TraceParent string
	// Key is its key in a keyed queue, and nil in any other.
	Key  []byte
	news *news
}

// news is what the handler of an item and its worker tell each other.
type news struct {
	mutex       sync.Mutex
	isCancelled bool
	report      *Report
	result      []byte
}

// ReportProgress reports how far the handler is: a percentage, without one if it is negative, and a message, which may be
// empty. The next extension of the lease has the last report; nothing waits for it.
func (item *Item) ReportProgress(percent float64, message string) {
	if item.news == nil {
		return
	}
	report := &Report{ID: item.ID, Message: message}
	if len(message) > longestMessage {
		report.Message = strings.ToValidUTF8(message[:longestMessage], "")
	}
	if percent >= 0 {
		percent = math.Min(percent, 100)
		report.Percent = &percent
	}
	item.news.mutex.Lock()
	defer item.news.mutex.Unlock()
	item.news.report = report
}

// SetResult gives a result of up to 90,000 bytes, which counts if the handler returns nil.
func (item *Item) SetResult(result []byte) {
	if item.news == nil {
		return
	}
	item.news.mutex.Lock()
	defer item.news.mutex.Unlock()
	item.news.result = append([]byte{}, result...)
}

// IsCancelled reports whether the item was cancelled. Then the handler's context has ended, and how the handler ends does not
// count.
func (item *Item) IsCancelled() bool {
	if item.news == nil {
		return false
	}
	item.news.mutex.Lock()
	defer item.news.mutex.Unlock()
	return item.news.isCancelled
}

// Report tells a daemon how far an item is.
type Report struct {
	ID      string   `json:"id"`
	Percent *float64 `json:"percent,omitempty"`
	Message string   `json:"message,omitempty"`
}

// UnmarshalJSON reads an item of a daemon's answer.
func (item *Item) UnmarshalJSON(text []byte) error {
	var found struct {
		ID          string            `json:"id"`
		Attempt     int               `json:"attempt"`
		Payload     *string           `json:"payload"`
		Bytes       []byte            `json:"payload_base64"`
		Attributes  map[string]string `json:"attributes"`
		ContentType string            `json:"content_type"`
		TraceParent string            `json:"trace_parent"`
		Key         *string           `json:"key"`
		KeyBytes    []byte            `json:"key_base64"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	*item = Item{
		found.ID, found.Attempt, found.Bytes, found.Attributes, found.ContentType, found.TraceParent, found.KeyBytes, &news{},
	}
	if found.Payload != nil {
		item.Payload = []byte(*found.Payload)
	}
	if found.Key != nil {
		item.Key = []byte(*found.Key)
	}
	return nil
}

// NewItem is an item to be pushed. A Payload that is a map, a struct, a slice or an array is stored as JSON; a string and []byte
// are stored as they are. It expires if no attempt has begun within TTL; with 0 the queue's own time holds. Key is its
// key in a keyed queue; nil in any other. Batch is the id of a batch that it becomes a member of. Unique is its unique key: with
// another item of this key nothing is pushed. The key is taken until the item ends, or for UniqueFor. With Replace an item that
// waits under the key gets what is pushed.
type NewItem struct {
	Payload     any
	Delay       time.Duration
	At          time.Time
	TTL         time.Duration
	Unique      string
	UniqueFor   time.Duration
	Replace     bool
	Batch       string
	Attributes  map[string]string
	ContentType string
	TraceParent string
	Priority    int64
	Key         []byte
}

// MarshalJSON writes the item as a daemon reads it.
func (item NewItem) MarshalJSON() ([]byte, error) {
	payload, err := payloadOf(item.Payload)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	setBytes(found, "payload", payload)
	if item.Key != nil {
		setBytes(found, "key", item.Key)
	}
	if item.Delay > 0 {
		found["delay_ms"] = item.Delay.Milliseconds()
	}
	if !item.At.IsZero() {
		found["at"] = item.At.UTC().Format(time.RFC3339Nano)
	}
	if item.TTL > 0 {
		found["ttl_ms"] = item.TTL.Milliseconds()
	}
	if item.UniqueFor > 0 {
		found["unique_for_ms"] = item.UniqueFor.Milliseconds()
	}
	if item.Replace {
		found["replace"] = true
	}
	if item.Attributes != nil {
		found["attributes"] = item.Attributes
	}
	if item.Priority != 0 {
		found["priority"] = item.Priority
	}
	setTexts(found, map[string]string{
		"unique": item.Unique, "batch": item.Batch, "content_type": item.ContentType, "trace_parent": item.TraceParent,
	})
	return json.Marshal(found)
}

// payloadOf returns a payload as it is stored.
func payloadOf(payload any) ([]byte, error) {
	switch payload := payload.(type) {
	case nil:
		// An item of which only the key matters.
		return nil, nil
	case []byte:
		return payload, nil
	case json.RawMessage:
		return payload, nil
	case string:
		return []byte(payload), nil
	}
	value := reflect.ValueOf(payload)
	for value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.Map, reflect.Struct, reflect.Slice, reflect.Array:
	default:
		return nil, fmt.Errorf("the payload is a %T; write a map, a struct or a slice (stored as JSON), a string or []byte", payload)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// The characters < and > need no escapes outside a page.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(payload); err != nil {
		return nil, fmt.Errorf("cannot store the payload, a %T, as JSON: %w", payload, err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

func setBytes(object map[string]any, name string, value []byte) {
	if utf8.Valid(value) {
		object[name] = string(value)
	} else {
		object[name+"_base64"] = value
	}
}

// setTexts sets the texts that are not empty.
func setTexts(object map[string]any, texts map[string]string) {
	for name, value := range texts {
		if value != "" {
			object[name] = value
		}
	}
}

// Pushed is the result of a push: how many items were added, and of each its id and effect ("added", "duplicate",
// "replaced", "repeated"). Already reports whether a push with this idempotency key was done before.
type Pushed struct {
	Pushed  int      `json:"pushed"`
	IDs     []string `json:"ids"`
	Effects []string `json:"effects"`
	Already bool     `json:"already"`
}

// Outcome is how a worker ends an item of a lease.
type Outcome struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	AfterMS *int64 `json:"after_ms,omitempty"`
	Scope   string `json:"scope,omitempty"`
	// Result is the result of an item that is done, as text, or ResultBytes if it is not text.
	Result      *string `json:"result,omitempty"`
	ResultBytes []byte  `json:"result_base64,omitempty"`
}

// setResult sets a result; nil is none.
func (o *Outcome) setResult(result []byte) {
	if result == nil {
		return
	}
	if text := string(result); utf8.Valid(result) {
		o.Result = &text
	} else {
		o.ResultBytes = result
	}
}

func (o *Outcome) resultLen() int {
	if o.Result != nil {
		return len(*o.Result)
	}
	return len(o.ResultBytes)
}

// ending is an error that a handler returns to end an item in a certain way.
type ending struct {
	outcome, reason, scope string
	after                  *time.Duration
}

func (e *ending) Error() string { return e.outcome + ": " + e.reason }

// Retry is the error of an item that failed: it is tried again by the queue's rules. Any other error does the same.
func Retry(reason string) error { return &ending{outcome: "retry", reason: reason} }

// RetryAfter is the error of an item that failed and is tried again after a pause.
func RetryAfter(after time.Duration, reason string) error {
	return &ending{outcome: "retry", reason: reason, after: &after}
}

// Release is the error of an item that goes back to the queue. The attempt does not count.
func Release() error { return &ending{outcome: "release"} }

// Throttle is the error of an item that a service has refused for now. The item goes back to the queue, the attempt does not
// count, and no item of the scope ("key", "tenant" or "queue") starts for this time.
func Throttle(scope string, after time.Duration, reason string) error {
	return &ending{outcome: "throttle", reason: reason, scope: scope, after: &after}
}

// Dead is the error of an item that failed for good. It becomes a dead letter.
func Dead(reason string) error { return &ending{outcome: "dead", reason: reason} }

func outcomeOf(id string, err error) Outcome {
	if err == nil {
		return Outcome{ID: id, Outcome: "done"}
	}
	var wanted *ending
	if !errors.As(err, &wanted) {
		// Not err.Error(), which may panic.
		wanted = &ending{outcome: "retry", reason: fmt.Sprint(err)}
	}
	found := Outcome{ID: id, Outcome: wanted.outcome, Reason: wanted.reason, Scope: wanted.scope}
	if len(found.Reason) > longestReason {
		found.Reason = strings.ToValidUTF8(found.Reason[:longestReason], "")
	}
	if wanted.after != nil {
		after, longest := *wanted.after, longestAfter
		if wanted.outcome == "throttle" {
			longest = longestThrottle
		}
		if after < 0 {
			after = 0
		} else if after > longest {
			after = longest
		}
		millis := after.Milliseconds()
		found.AfterMS = &millis
	}
	return found
}

// Client is the API of a daemon, or of several daemons of one database. After a failure it asks the next daemon.
// It may be used by many goroutines.
type Client struct {
	token   string
	daemons []daemon
	// Counts, modulo the number of daemons.
	turn atomic.Uint32
}

type daemon struct {
	url, base string
	http      *http.Client
}

// NewClient makes a client. URLs are such as http://127.0.0.1:7420, https://HOST or unix:/run/kvqueue/http.sock. The
// token is by default the one in KVQUEUE_TOKEN. TLS is for https; without it, the system's authorities are trusted.
func NewClient(urls []string, token string, settings *tls.Config) (*Client, error) {
	if len(urls) == 0 {
		return nil, errors.New("there is no URL of a daemon")
	}
	if token == "" {
		token = os.Getenv("KVQUEUE_TOKEN")
	}
	// Files with a token end with a newline.
	client := &Client{token: strings.TrimSpace(token)}
	if strings.IndexFunc(client.token, func(r rune) bool { return r < '!' || r > '~' }) >= 0 {
		return nil, errors.New("the token has a character that cannot be sent; give the token alone")
	}
	for _, text := range urls {
		found, err := newDaemon(text, settings)
		if err != nil {
			return nil, err
		}
		client.daemons = append(client.daemons, found)
	}
	return client, nil
}

func newDaemon(text string, settings *tls.Config) (daemon, error) {
	dialer := &net.Dialer{Timeout: connectTimeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: settings,
		TLSHandshakeTimeout: connectTimeout, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}
	base := strings.TrimRight(text, "/")
	parsed, err := url.Parse(text)
	switch {
	case err == nil && parsed.Scheme == "unix":
		path := strings.TrimPrefix(text, "unix:")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		base = "http://localhost"
	case err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "":
		return daemon{}, fmt.Errorf("%q is not the URL of a daemon, such as http://127.0.0.1:7420 or unix:/run/kvqueue/http.sock", text)
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return daemon{text, base, &http.Client{Transport: transport, CheckRedirect: noRedirects}}, nil
}

// call sends one request to the daemon whose turn it is. After a failure it is the next one's turn. There may be no body (nil).
func (c *Client) call(ctx context.Context, timeout time.Duration, method, path string, body, answer any) error {
	turn := c.turn.Load()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.exchange(ctx, c.daemons[turn%uint32(len(c.daemons))], method, path, body, answer)
	// A caller that has given up says nothing about the daemon.
	if err != nil && isTemporary(err) && !errors.Is(err, context.Canceled) {
		c.turn.CompareAndSwap(turn, turn+1)
	}
	return err
}

// ask sends a request until a daemon answers, for the time of a request and 30 s. If an answer is lost, isRepeatable decides.
func (c *Client) ask(ctx context.Context, timeout time.Duration, method, path string, body, answer any, isRepeatable bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout-pushTimeout+requestTimeout)
	defer cancel()
	if !isRepeatable {
		timeout = requestTimeout
	}
	between := pauses{daemons: len(c.daemons)}
	for {
		err := c.call(ctx, timeout, method, path, body, answer)
		if err == nil || !(isRepeatable || isUnsent(err)) || !isTemporary(err) || ctx.Err() != nil {
			return err
		}
		sleep(ctx, between.next(err))
		if ctx.Err() != nil {
			return err
		}
	}
}

func (c *Client) exchange(ctx context.Context, to daemon, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return &invalidError{err}
		}
		content = bytes.NewReader(text)
	}
	var isConnected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isConnected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, method, to.base+"/api/v1/queues/"+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", userAgent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := to.http.Do(request)
	if err != nil && !isConnected.Load() {
		return &unsentError{err}
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	found, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusNoContent {
		return nil
	}
	if response.StatusCode/100 == 2 {
		if answer == nil {
			return nil
		}
		return json.Unmarshal(found, answer)
	}
	return c.refusal(response, found, to.url, method, path)
}

// scopeOf returns the scope that a request needs.
func scopeOf(method, path string) string {
	parts := strings.Split(path, "/")
	switch {
	case method == http.MethodGet:
		return "read"
	case parts[1] == "lease" || parts[1] == "leases":
		return "work"
	case method == http.MethodPost && (parts[1] == "batches" || parts[1] == "items" && len(parts) == 2):
		return "push"
	}
	return "admin"
}

func (c *Client) refusal(response *http.Response, text []byte, daemon, method, path string) error {
	var found struct {
		Error *struct{ Code, Message, Fix string }
	}
	refused := &APIError{Status: response.StatusCode, Code: "unknown"}
	if json.Unmarshal(text, &found) == nil && found.Error != nil {
		refused.Code, refused.Message = found.Error.Code, found.Error.Message+"; "+found.Error.Fix
	} else {
		// Another program has answered, such as a proxy.
		refused.Message = fmt.Sprintf("%.200s", text)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		refused.RetryAfter = time.Duration(seconds) * time.Second
	}
	if refused.Status == http.StatusUnauthorized || refused.Code == "forbidden" {
		token := "requests without a token"
		if strings.HasPrefix(c.token, "kvq_") {
			token = fmt.Sprintf("the token %.12s...", c.token)
		} else if c.token != "" {
			token = "the token"
		}
		queue, _ := url.PathUnescape(strings.Split(path, "/")[0])
		refused.Message += fmt.Sprintf("; %s refuses %s; get one with 'kvqueue token new NAME --scope %s --queue %s', "+
			"and give it as Token or in KVQUEUE_TOKEN", daemon, token, scopeOf(method, path), queue)
	}
	return refused
}

// pauses are those between attempts: none until each daemon was asked, then growing ones.
type pauses struct{ daemons, failures int }

func (p *pauses) next(err error) time.Duration {
	p.failures++
	if p.failures%p.daemons != 0 {
		return 0
	}
	pause := longestPause
	if rounds := p.failures / p.daemons; rounds < 8 {
		pause = firstPause << (rounds - 1)
	}
	if pause > longestPause {
		pause = longestPause
	}
	pause = pause/2 + time.Duration(rand.Int63n(int64(pause/2)))
	var refused *APIError
	if errors.As(err, &refused) && refused.RetryAfter > pause {
		pause = refused.RetryAfter
		if pause > longestRetryAfter {
			pause = longestRetryAfter
		}
	}
	return pause
}

// sleep returns early if the context ends.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Push pushes up to 1000 items in one transaction. They are stored durably when it returns. The idempotency key may
// be empty.
//
// It tries until the context ends, for 30 s at most. If the answer is lost, it repeats the push only with an idempotency key.
func (c *Client) Push(ctx context.Context, queue string, items []NewItem, idempotencyKey string) (Pushed, error) {
	body := struct {
		Items []NewItem `json:"items"`
		Key   string    `json:"idempotency_key,omitempty"`
	}{items, idempotencyKey}
	var pushed Pushed
	if err := c.ask(ctx, pushTimeout, http.MethodPost, url.PathEscape(queue)+"/items", body, &pushed, idempotencyKey != ""); err != nil {
		return Pushed{}, err
	}
	return pushed, nil
}

// ItemView is an item, whatever it is doing.
type ItemView struct {
	ID string `json:"id"`
	// State is "ready", "scheduled", "retrying", "running", "dead" or "finished".
	State string `json:"state"`
	// Outcome of an item that has ended is "done", "dead", "cancelled", "expired" or "taken"; it is empty if the queue keeps
	// no history.
	Outcome string `json:"outcome"`
	Payload []byte `json:"-"`
	// Result is what its handler has given; nil if it gave none.
	Result []byte `json:"-"`
	Key    []byte `json:"-"`
	// Progress is how far the handler of a running item is; nil if it has reported nothing.
	Progress    *Progress         `json:"progress"`
	Attempts    int               `json:"attempts"`
	Reason      string            `json:"reason"`
	Attributes  map[string]string `json:"attributes"`
	ContentType string            `json:"content_type"`
	Batch       string            `json:"batch"`
	EnqueuedAt  *time.Time        `json:"enqueued_at"`
	StartedAt   *time.Time        `json:"started_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	// Answer is all that the daemon has answered.
	Answer json.RawMessage `json:"-"`
}

// Progress is how far a handler is. Percent is nil if it has not reported one.
type Progress struct {
	At      time.Time `json:"at"`
	Percent *int      `json:"percent"`
	Message string    `json:"message"`
}

// HasEnded reports whether it has ended, or is a dead letter.
func (item *ItemView) HasEnded() bool { return item.State == "finished" || item.State == "dead" }

// UnmarshalJSON reads a daemon's answer.
func (item *ItemView) UnmarshalJSON(text []byte) error {
	type plain ItemView
	var found struct {
		plain
		Payload      *string `json:"payload"`
		PayloadBytes []byte  `json:"payload_base64"`
		Result       *string `json:"result"`
		ResultBytes  []byte  `json:"result_base64"`
		Key          *string `json:"key"`
		KeyBytes     []byte  `json:"key_base64"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	*item = ItemView(found.plain)
	item.Payload, item.Result, item.Key = found.PayloadBytes, found.ResultBytes, found.KeyBytes
	for to, value := range map[*[]byte]*string{&item.Payload: found.Payload, &item.Result: found.Result, &item.Key: found.Key} {
		if value != nil {
			*to = []byte(*value)
		}
	}
	item.Answer = append(json.RawMessage{}, text...)
	return nil
}

func itemPath(queue, id string) string { return url.PathEscape(queue) + "/items/" + url.PathEscape(id) }

func batchPath(queue, batch string) string {
	return url.PathEscape(queue) + "/batches/" + url.PathEscape(batch)
}

func schedulePath(queue, name string) string {
	return url.PathEscape(queue) + "/schedules/" + url.PathEscape(name)
}

// ShowItem returns an item, whatever it is doing. One that has ended is there if the queue keeps a history. The scope is read.
func (c *Client) ShowItem(ctx context.Context, queue, id string) (ItemView, error) {
	var found ItemView
	err := c.ask(ctx, pushTimeout, http.MethodGet, itemPath(queue, id), nil, &found, true)
	return found, err
}

// WaitItem waits until an item has ended or is a dead letter, for some time at most, and returns it as it is then. Without a
// history of the queue, its result and its outcome are not known. The scope is read.
func (c *Client) WaitItem(ctx context.Context, queue, id string, wait time.Duration) (ItemView, error) {
	until, isKnown := time.Now().Add(wait), false
	for {
		left := time.Until(until)
		if left < 0 {
			left = 0
		}
		step := left
		if step > itemWait {
			step = itemWait
		}
		path := fmt.Sprintf("%s?wait_ms=%d", itemPath(queue, id), (step + time.Millisecond - 1).Milliseconds())
		var found ItemView
		err := c.ask(ctx, step+pushTimeout, http.MethodGet, path, nil, &found, true)
		var refused *APIError
		if isKnown && errors.As(err, &refused) && refused.Code == "not_found" {
			// It has ended between two requests.
			return ItemView{ID: id, State: "finished"}, nil
		}
		if err != nil || found.HasEnded() || step == left {
			return found, err
		}
		isKnown = true
	}
}

// CancelItem cancels an item that has not ended, and returns the state that it had. The scope is admin.
func (c *Client) CancelItem(ctx context.Context, queue, id string) (string, error) {
	var found struct {
		Before string `json:"state_before"`
	}
	err := c.ask(ctx, pushTimeout, http.MethodPost, itemPath(queue, id)+"/cancel", nil, &found, false)
	return found.Before, err
}

// BatchCounts are the members of a batch: all, the open ones, and how the others ended.
type BatchCounts struct {
	Members   int64 `json:"members"`
	Open      int64 `json:"open"`
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Taken     int64 `json:"taken"`
}

// Batch is a batch that has not called back. State is "open" or "committed". Then is what it pushes in the end.
type Batch struct {
	ID        string         `json:"id"`
	Queue     string         `json:"queue"`
	State     string         `json:"state"`
	Created   time.Time      `json:"created"`
	Committed *time.Time     `json:"committed,omitempty"`
	Deadline  *time.Time     `json:"deadline,omitempty"`
	Counts    BatchCounts    `json:"counts"`
	Then      map[string]any `json:"then"`
}

// NewBatch makes a batch, and returns its id. When all items that were pushed to it have ended, it pushes then to the queue;
// with a deadline, unless that is 0, by then, whatever has ended. The scope is push.
func (c *Client) NewBatch(ctx context.Context, queue string, then NewItem, deadline time.Duration) (string, error) {
	body := struct {
		Then     NewItem `json:"then"`
		Deadline int64   `json:"deadline_ms,omitempty"`
	}{then, deadline.Milliseconds()}
	var found struct {
		ID string `json:"id"`
	}
	err := c.ask(ctx, pushTimeout, http.MethodPost, url.PathEscape(queue)+"/batches", body, &found, false)
	return found.ID, err
}

// ItemOf names an item of a queue. Without a queue it is one of the queue that is pushed to.
type ItemOf struct {
	Queue string `json:"queue,omitempty"`
	ID    string `json:"id"`
}

// Waits says for how many items a batch waits, by its ID, how many of them had ended, by outcome, and how many are not in their
// queues.
type Waits struct {
	ID       string         `json:"id"`
	WaitsFor int            `json:"waits_for"`
	Ended    map[string]int `json:"ended"`
	Gone     int            `json:"gone"`
}

// AfterOptions are those of PushAfter. Deadline, unless it is 0, is when the item is pushed, whatever has ended. MissingOK takes an
// item that is not there for one that has ended; otherwise nothing is pushed then.
type AfterOptions struct {
	Deadline  time.Duration
	MissingOK bool
}

// PushAfter pushes then to the queue when other items have ended, whichever way. The scope is push, for the queues of the other
// items, too.
func (c *Client) PushAfter(ctx context.Context, queue string, then NewItem, after []ItemOf, options AfterOptions) (Waits, error) {
	missing := ""
	if options.MissingOK {
		missing = "ended"
	}
	body := struct {
		Then     NewItem  `json:"then"`
		After    []ItemOf `json:"after"`
		Missing  string   `json:"missing,omitempty"`
		Deadline int64    `json:"deadline_ms,omitempty"`
	}{then, after, missing, options.Deadline.Milliseconds()}
	var found Waits
	err := c.ask(ctx, pushTimeout, http.MethodPost, url.PathEscape(queue)+"/batches", body, &found, false)
	return found, err
}

// CommitBatch ends the pushes to a batch, so that it can call back. It reports whether the batch was not committed before. The
// scope is push.
func (c *Client) CommitBatch(ctx context.Context, queue, batch string) (bool, error) {
	var found struct {
		Changed bool `json:"changed"`
	}
	err := c.ask(ctx, pushTimeout, http.MethodPost, batchPath(queue, batch)+"/commit", nil, &found, true)
	return found.Changed, err
}

// ShowBatch returns a batch that has not called back. The scope is read.
func (c *Client) ShowBatch(ctx context.Context, queue, batch string) (Batch, error) {
	var found Batch
	err := c.ask(ctx, pushTimeout, http.MethodGet, batchPath(queue, batch), nil, &found, true)
	return found, err
}

// ListBatches returns the batches of a queue that have not called back. The scope is read.
func (c *Client) ListBatches(ctx context.Context, queue string) ([]Batch, error) {
	return pages[Batch](ctx, c, url.PathEscape(queue)+"/batches", "batches")
}

// CancelBatch removes a batch, and returns its counts. It does not call back, and its items go on. The scope is admin.
func (c *Client) CancelBatch(ctx context.Context, queue, batch string) (BatchCounts, error) {
	var found struct {
		Counts BatchCounts `json:"counts"`
	}
	err := c.ask(ctx, pushTimeout, http.MethodDelete, batchPath(queue, batch), nil, &found, false)
	return found.Counts, err
}

// ScheduleDefinition is when a schedule fires (Cron and perhaps Zone, or Every), and what it pushes. Missed is "skip", "once" or
// "all"; Overlap is "allow", "skip" or "queue". What is not set is as the daemon has it by default. Create is for PutSchedule alone.
type ScheduleDefinition struct {
	Cron, Zone   string
	Every        time.Duration
	Payload      []byte
	Attributes   map[string]string
	ContentType  string
	Key          []byte
	Priority     int64
	Missed       string
	MissedWindow time.Duration
	MissedMax    int
	Overlap      string
	Jitter       time.Duration
	Create       bool
}

// MarshalJSON writes the definition as a daemon reads it.
func (d ScheduleDefinition) MarshalJSON() ([]byte, error) {
	found := map[string]any{}
	setBytes(found, "payload", d.Payload)
	if d.Key != nil {
		setBytes(found, "key", d.Key)
	}
	if d.Attributes != nil {
		found["attributes"] = d.Attributes
	}
	if d.Priority != 0 {
		found["priority"] = d.Priority
	}
	if d.MissedMax != 0 {
		found["missed_max"] = d.MissedMax
	}
	setTexts(found, map[string]string{
		"cron": d.Cron, "zone": d.Zone, "content_type": d.ContentType, "missed": d.Missed, "overlap": d.Overlap,
	})
	for name, value := range map[string]time.Duration{"every": d.Every, "missed_window": d.MissedWindow, "jitter": d.Jitter} {
		if value != 0 {
			found[name] = fmt.Sprintf("%dms", value.Milliseconds())
		}
	}
	return json.Marshal(found)
}

// Firing is a time that a calendar gives, and the same with the jitter.
type Firing struct {
	Time    time.Time `json:"time"`
	FiresAt time.Time `json:"fires_at"`
}

// Schedule is a schedule. State is "active", "overdue", "paused", "waiting" or "unreadable". Times are its next ones; they and
// the payload are there if it was asked for by its name. Definition is as the daemon has it.
type Schedule struct {
	Queue       string         `json:"queue"`
	Name        string         `json:"name"`
	State       string         `json:"state"`
	Description string         `json:"description"`
	Owner       string         `json:"owner"`
	Definition  map[string]any `json:"definition"`
	Next        *Firing        `json:"next"`
	Times       []Firing       `json:"times"`
	Last        *struct {
		Time time.Time `json:"time"`
		Item string    `json:"item"`
	} `json:"last"`
	Occurrences int64 `json:"occurrences"`
}

// StoredSchedule is what became of a definition. Effect is "created", "replaced" or "unchanged". Description is when the schedule
// fires, in English.
type StoredSchedule struct {
	Effect      string  `json:"effect"`
	Description string  `json:"description"`
	Next        *Firing `json:"next"`
}

// Occurrence is what became of one time of a schedule, or of several in a row. Outcome is "fired", "fired_by_hand", "skipped" or
// "missed".
type Occurrence struct {
	Number     uint64    `json:"number"`
	At         time.Time `json:"at"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Count      int64     `json:"count"`
	Exact      bool      `json:"exact"`
	Outcome    string    `json:"outcome"`
	Reason     string    `json:"reason"`
	Occurrence uint64    `json:"occurrence"`
	Item       string    `json:"item"`
}

// ListSchedules returns the schedules of a queue, without their payloads. The scope is read.
func (c *Client) ListSchedules(ctx context.Context, queue string) ([]Schedule, error) {
	return pages[Schedule](ctx, c, url.PathEscape(queue)+"/schedules", "schedules")
}

// ShowSchedule returns a schedule, with its payload and its next five times. The scope is read.
func (c *Client) ShowSchedule(ctx context.Context, queue, name string) (Schedule, error) {
	var found Schedule
	err := c.ask(ctx, pushTimeout, http.MethodGet, schedulePath(queue, name), nil, &found, true)
	return found, err
}

// PutSchedule makes a schedule, or replaces it whole. With Create also for a queue that is nowhere yet: before its first push, if
// the daemon's configuration does not have it. The scope is admin.
func (c *Client) PutSchedule(ctx context.Context, queue, name string, definition ScheduleDefinition) (StoredSchedule, error) {
	var found StoredSchedule
	path := schedulePath(queue, name)
	if definition.Create {
		path += "?create=true"
	}
	err := c.ask(ctx, pushTimeout, http.MethodPut, path, definition, &found, true)
	return found, err
}

// RemoveSchedule removes a schedule with its history; with force also one of a configuration. The scope is admin.
func (c *Client) RemoveSchedule(ctx context.Context, queue, name string, force bool) error {
	path := schedulePath(queue, name)
	if force {
		path += "?force=true"
	}
	return c.ask(ctx, pushTimeout, http.MethodDelete, path, nil, nil, false)
}

// PauseSchedule pauses a schedule. The scope is admin.
func (c *Client) PauseSchedule(ctx context.Context, queue, name string) error {
	return c.ask(ctx, pushTimeout, http.MethodPost, schedulePath(queue, name)+"/pause", nil, nil, true)
}

// ResumeSchedule lets a schedule go on. With restart it begins now, also if it is not paused. The scope is admin.
func (c *Client) ResumeSchedule(ctx context.Context, queue, name string, restart bool) error {
	var body any
	if restart {
		body = map[string]bool{"restart": true}
	}
	return c.ask(ctx, pushTimeout, http.MethodPost, schedulePath(queue, name)+"/resume", body, nil, !restart)
}

// FireSchedule pushes an item of a schedule now, and returns its id, which is empty if the item is gone already. The scope is
// admin.
func (c *Client) FireSchedule(ctx context.Context, queue, name string) (string, error) {
	var found struct {
		Item string `json:"item"`
	}
	err := c.ask(ctx, pushTimeout, http.MethodPost, schedulePath(queue, name)+"/fire", nil, &found, false)
	return found.Item, err
}

// ScheduleHistory returns what became of the times of a schedule, the newest first: at most 1000 records. The scope is read.
func (c *Client) ScheduleHistory(ctx context.Context, queue, name string) ([]Occurrence, error) {
	return pages[Occurrence](ctx, c, schedulePath(queue, name)+"/history", "records")
}

// pages returns the entries of all pages of a list.
func pages[T any](ctx context.Context, c *Client, path, name string) ([]T, error) {
	all, query := []T{}, ""
	for {
		var page map[string]json.RawMessage
		if err := c.ask(ctx, pushTimeout, http.MethodGet, path+query, nil, &page, true); err != nil {
			return nil, err
		}
		var found []T
		if err := json.Unmarshal(page[name], &found); err != nil {
			return nil, err
		}
		all = append(all, found...)
		var next *string
		if err := json.Unmarshal(page["next"], &next); err != nil {
			return nil, err
		}
		if next == nil {
			return all, nil
		}
		query = "?after=" + url.QueryEscape(*next)
	}
}

// Leased is what a request for items returns. ID is empty if nothing was ready. The lease's time began WaitedMS after the
// request was sent; a daemon of an earlier version does not tell.
type Leased struct {
	ID        string  `json:"lease"`
	ExpiresMS int64   `json:"expires_in_ms"`
	WaitedMS  *int64  `json:"waited_ms"`
	Items     []*Item `json:"items"`
}

// Lease leases up to max items. It waits for them at the daemon. A lease of zero is as long as the queue's.
func (c *Client) Lease(ctx context.Context, queue string, max int, wait, lease time.Duration) (Leased, error) {
	body := struct {
		Max   int   `json:"max"`
		Wait  int64 `json:"wait_ms"`
		Lease int64 `json:"lease_ms,omitempty"`
	}{max, wait.Milliseconds(), lease.Milliseconds()}
	var found Leased
	err := c.call(ctx, wait+requestTimeout, http.MethodPost, url.PathEscape(queue)+"/lease", body, &found)
	return found, err
}

// cancelledItems is what an extension or an acknowledgement returns.
type cancelledItems struct {
	Cancelled []string `json:"cancelled"`
}

// Extend extends a lease, and tells the daemon how far its items are. It returns the ids of its cancelled items.
func (c *Client) Extend(ctx context.Context, queue, lease string, reports ...Report) ([]string, error) {
	body := struct {
		Progress []Report `json:"progress,omitempty"`
	}{reports}
	var found cancelledItems
	err := c.call(ctx, requestTimeout, http.MethodPost, url.PathEscape(queue)+"/leases/"+lease+"/extend", body, &found)
	return found.Cancelled, err
}

// Acknowledge acknowledges items of a lease. With releaseRest, all others go back. It returns the ids of the cancelled items of
// the lease, whose outcomes are passed over.
func (c *Client) Acknowledge(ctx context.Context, queue, lease string, outcomes []Outcome, releaseRest bool) ([]string, error) {
	body := struct {
		Outcomes    []Outcome `json:"outcomes"`
		ReleaseRest bool      `json:"release_rest"`
	}{outcomes, releaseRest}
	var found cancelledItems
	err := c.call(ctx, requestTimeout, http.MethodPost, url.PathEscape(queue)+"/leases/"+lease+"/acknowledge", body, &found)
	return found.Cancelled, err
}

// Close closes idle connections.
func (c *Client) Close() {
	for _, each := range c.daemons {
		each.http.CloseIdleConnections()
	}
}

// Config is what a worker needs. URLs and Queue have to be set.
type Config struct {
	// Token and TLS are those of NewClient.
	URLs  []string
	Token string
	TLS   *tls.Config
	Queue string
	// Concurrency is how many items are handled at a time: 1 by default.
	Concurrency int
	// Batch is the most items of a lease, 1 to 1000: 100 by default. A worker leases as many as it handles in about a second.
	Batch int
	// Lease is the length of a lease: by default the queue's.
	Lease time.Duration
	// Wait is how long a request for items waits at the daemon: 20 s by default.
	Wait time.Duration
	// Logf gets warnings: log.Printf by default.
	Logf func(format string, arguments ...any)
}

// Handler handles an item. An error is a retry, unless it is one of Retry, RetryAfter, Release, Throttle or Dead. The context ends
// if the lease has expired: then another worker may handle the item. It also ends if the item was cancelled, which
// item.IsCancelled reports.
type Handler func(ctx context.Context, item *Item) error

// Work handles the items of a queue until the context ends: then running items are finished, and the others go back.
// Its error is an *APIError if the daemon does not let this worker do so.
func Work(ctx context.Context, config Config, handle Handler) error {
	if config.Concurrency == 0 {
		config.Concurrency = 1
	}
	if config.Batch == 0 {
		config.Batch = 100
	}
	if config.Wait == 0 {
		config.Wait = 20 * time.Second
	}
	if config.Logf == nil {
		config.Logf = log.Printf
	}
	if config.Concurrency < 1 || config.Batch < 1 || config.Batch > 1000 {
		return errors.New("Concurrency is 1 or more, and Batch is 1 to 1000")
	}
	client, err := NewClient(config.URLs, config.Token, config.TLS)
	if err != nil {
		return err
	}
	defer client.Close()
	// The requests for items have a turn of their own: an acknowledgement need not change its daemon with them.
	fetcher, err := NewClient(config.URLs, config.Token, config.TLS)
	if err != nil {
		return err
	}
	defer fetcher.Close()
	w := &worker{
		Config: config, client: client, fetcher: fetcher, handle: handle, leases: map[string]*lease{}, average: -1,
		room: make(chan struct{}, 1), requests: make(chan struct{}, mostRequests),
	}
	w.base, w.abandon = context.WithCancel(detached{ctx})
	defer w.abandon()
	w.stopping, w.stop = context.WithCancel(ctx)
	defer w.stop()
	return w.run()
}

// detached has the values of a context, and goes on after its end.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// lease has items that are not acknowledged. The worker's mutex guards it.
type lease struct {
	id                              string
	length                          time.Duration
	came, deadline, extendAt, since time.Time
	// When an extension has to tell what handlers have reported, although acknowledgements extend the lease.
	reportAt time.Time
	// Its items without an outcome, by their ids, and the outcomes that are not acknowledged.
	unfinished map[string]*unfinished
	outcomes   []Outcome
	// Acknowledgements that failed: since when, and when to try again.
	pauses                pauses
	failingSince, retryAt time.Time
	// Wakes the goroutine that keeps it.
	changed chan struct{}
	// The handlers' context. It ends when the lease has expired.
	ctx        context.Context
	endHandler context.CancelFunc
}

// extended: its time begins at since, no later than the daemon's, so it does not end before the deadline.
func (l *lease) extended(since time.Time) {
	l.deadline, l.extendAt = since.Add(l.length), since.Add(l.length/3)
}

// open returns how many of its items are not acknowledged.
func (l *lease) open() int { return len(l.unfinished) + len(l.outcomes) }

// isWhole reports whether the next acknowledgement ends it.
func (l *lease) isWhole() bool { return len(l.unfinished) == 0 }

// nextExtension is when to extend it.
func (l *lease) nextExtension() time.Time {
	if !l.reportAt.Before(l.extendAt) {
		return l.extendAt
	}
	for _, each := range l.unfinished {
		each.item.news.mutex.Lock()
		hasReport := each.item.news.report != nil
		each.item.news.mutex.Unlock()
		if hasReport {
			return l.reportAt
		}
	}
	return l.extendAt
}

// takeReports takes what handlers have reported, for one request.
func (l *lease) takeReports() []Report {
	var found []Report
	for _, each := range l.unfinished {
		each.item.news.mutex.Lock()
		if report := each.item.news.report; report != nil && len(found) < mostReports {
			found = append(found, *report)
			each.item.news.report = nil
		}
		each.item.news.mutex.Unlock()
	}
	return found
}

// returnReports keeps reports that no daemon has got for the next request, unless there are later ones.
func (l *lease) returnReports(reports []Report) {
	for n := range reports {
		if each := l.unfinished[reports[n].ID]; each != nil {
			each.item.news.mutex.Lock()
			if each.item.news.report == nil {
				each.item.news.report = &reports[n]
			}
			each.item.news.mutex.Unlock()
		}
	}
}

// nextOutcomes returns a copy of those of the next request.
func (l *lease) nextOutcomes() []Outcome {
	size := 0
	for n := range l.outcomes {
		if size += l.outcomes[n].resultLen(); n == mostOutcomes || n > 0 && size > mostResults {
			return append([]Outcome(nil), l.outcomes[:n]...)
		}
	}
	return append([]Outcome(nil), l.outcomes...)
}

// dropResults takes the results of the first outcomes away, and reports whether there were any.
func (l *lease) dropResults(count int) bool {
	hadSome := false
	for n := range l.outcomes[:count] {
		each := &l.outcomes[n]
		hadSome = hadSome || each.Result != nil || each.ResultBytes != nil
		each.Result, each.ResultBytes = nil, nil
	}
	return hadSome
}

// unfinished is an item without an outcome. The handler that runs, if one does, is ended by end.
type unfinished struct {
	item *Item
	end  context.CancelFunc
}

// acknowledgeAt is when its outcomes need not wait for others any longer. There are some.
func (l *lease) acknowledgeAt(isStopping bool) time.Time {
	at := l.since
	if !isStopping && !l.isWhole() && len(l.outcomes) < mostOutcomes {
		at = at.Add(linger)
	}
	if l.retryAt.After(at) {
		return l.retryAt
	}
	return at
}

type waiting struct {
	lease *lease
	item  *Item
}

// worker leases items in one goroutine. Each lease has another one, which acknowledges and extends it.
type worker struct {
	Config
	// One for the requests of leases, one for the requests for items.
	client, fetcher *Client
	handle          Handler
	// Ends when the leases are abandoned.
	base     context.Context
	abandon  context.CancelFunc
	stopping context.Context
	stop     context.CancelFunc
	// Wakes the goroutine that leases items.
	room chan struct{}
	// Has an entry for each request of a lease that is under way.
	requests chan struct{}
	loops    sync.WaitGroup
	handlers sync.WaitGroup

	mutex     sync.Mutex
	failure   error
	stoppedAt time.Time
	// Items that no handler has begun with.
	waiting []waiting
	running int
	leases  map[string]*lease
	// How long a handler takes on average; negative before the first item.
	average time.Duration
}

func wake(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// wait waits for news, or for a time unless it is zero.
func wait(news chan struct{}, until time.Time) {
	if until.IsZero() {
		<-news
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	}
}

func (w *worker) run() error {
	w.loops.Add(1)
	go func() {
		defer w.loops.Done()
		if err := w.fetch(); err != nil {
			w.fail(err)
		}
	}()
	<-w.stopping.Done()
	w.mutex.Lock()
	w.stoppedAt = time.Now()
	for _, each := range w.leases {
		if soon := w.stoppedAt.Add(stopPause); each.retryAt.After(soon) {
			each.retryAt = soon
		}
	}
	w.giveBack(time.Time{})
	w.wakeAll()
	w.mutex.Unlock()
	w.loops.Wait()
	w.handlers.Wait()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.failure
}

// fail stops the worker, which ends with an error.
func (w *worker) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.failure == nil {
		w.failure = err
	}
	w.stop()
	w.wakeAll()
}

func (w *worker) wakeAll() {
	wake(w.room)
	for _, each := range w.leases {
		wake(each.changed)
	}
}

func (w *worker) fetch() error {
	between := pauses{daemons: len(w.URLs)}
	for {
		max := w.wanted()
		if max == 0 {
			return nil
		}
		asked, turn := time.Now(), w.fetcher.turn.Load()
		found, err := w.fetcher.Lease(w.stopping, w.Queue, max, w.Wait, w.Lease)
		switch {
		case err != nil && w.stopping.Err() != nil:
			return nil
		case err != nil && !isTemporary(err):
			return err
		case err != nil:
			pause := between.next(err)
			w.Logf("kvqueue: cannot lease items, trying again in %s: %v", pause.Round(time.Millisecond), err)
			sleep(w.stopping, pause)
		case found.ID != "":
			between.failures = 0
			w.add(found, asked)
		case time.Since(asked) < time.Second && time.Since(asked) < w.Wait/2+firstPause:
			between.failures = 0
			w.fetcher.turn.CompareAndSwap(turn, turn+1)
			sleep(w.stopping, emptyPause)
		default:
			between.failures = 0
		}
	}
}

// wanted returns how many items to lease, when there is room for some: 0 when the worker stops.
func (w *worker) wanted() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for w.stopping.Err() == nil {
		room, finished, have := 0, 0, len(w.waiting)
		if w.average >= 0 {
			room = int(time.Duration(w.Concurrency) * ahead / (w.average + time.Microsecond))
			if room > w.Batch {
				room = w.Batch
			}
		}
		if w.running < w.Concurrency {
			room += w.Concurrency - w.running
		}
		for _, each := range w.leases {
			finished += len(each.outcomes)
		}
		if finished < unacknowledged && have < room && have*2 <= room {
			if room-have > w.Batch {
				return w.Batch
			}
			return room - have
		}
		w.mutex.Unlock()
		wait(w.room, time.Time{})
		w.mutex.Lock()
	}
	return 0
}

func (w *worker) add(found Leased, asked time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	added := &lease{id: found.ID, length: time.Duration(found.ExpiresMS) * time.Millisecond, came: time.Now(), unfinished: map[string]*unfinished{}}
	began := added.came
	if found.WaitedMS != nil {
		began = asked.Add(time.Duration(*found.WaitedMS) * time.Millisecond)
	}
	added.extended(began)
	added.reportAt = added.extendAt
	added.pauses.daemons, added.changed = len(w.URLs), make(chan struct{}, 1)
	added.ctx, added.endHandler = context.WithCancel(w.base)
	w.leases[found.ID] = added
	for _, item := range found.Items {
		added.unfinished[item.ID] = &unfinished{item: item}
		w.waiting = append(w.waiting, waiting{added, item})
	}
	if w.stopping.Err() != nil {
		w.giveBack(time.Time{})
	}
	w.begin()
	w.loops.Add(1)
	go w.keep(added)
	if len(w.waiting) > 0 {
		time.AfterFunc(stuck+time.Millisecond, w.giveBackStuck)
	}
}

// giveBackStuck releases items that wait for longer than expected, because the running ones take longer.
func (w *worker) giveBackStuck() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	before := time.Now().Add(-stuck)
	if len(w.waiting) > 0 && w.waiting[0].lease.came.Before(before) {
		if w.average < stuck {
			w.average = stuck
		}
		w.giveBack(before)
	}
}

// giveBack releases items that no handler has begun with, if they were leased before some time. The mutex is held.
func (w *worker) giveBack(before time.Time) {
	for len(w.waiting) > 0 && (before.IsZero() || w.waiting[0].lease.came.Before(before)) {
		first := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.record(first.lease, Outcome{ID: first.item.ID, Outcome: "release"})
	}
}

// begin starts as many handlers as may run. The mutex is held.
func (w *worker) begin() {
	for w.running < w.Concurrency && len(w.waiting) > 0 {
		first := w.waiting[0]
		w.waiting = w.waiting[1:]
		if first.lease.ctx.Err() != nil || time.Now().After(first.lease.deadline) {
			// Another worker may have it by now.
			w.record(first.lease, Outcome{ID: first.item.ID, Outcome: "release"})
			continue
		}
		w.running++
		w.handlers.Add(1)
		ctx, end := context.WithCancel(first.lease.ctx)
		first.lease.unfinished[first.item.ID].end = end
		go w.work(ctx, first.lease, first.item)
	}
	wake(w.room)
}

func (w *worker) work(ctx context.Context, its *lease, item *Item) {
	defer w.handlers.Done()
	began := time.Now()
	err := w.call(ctx, item)
	took := time.Since(began)
	var wanted *ending
	if item.IsCancelled() || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		// Not the item's fault. How a cancelled item ends does not count.
		err = Release()
	} else if err != nil && !errors.As(err, &wanted) {
		w.Logf("kvqueue: item %s failed: %v", item.ID, err)
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.running--
	if w.average < 0 {
		w.average = took
	} else {
		w.average += (took - w.average) / 8
	}
	outcome := outcomeOf(item.ID, err)
	if err == nil {
		outcome.setResult(w.result(item))
	}
	w.record(its, outcome)
	w.begin()
}

// result returns the result that a handler has set; nil if there is none.
func (w *worker) result(item *Item) []byte {
	item.news.mutex.Lock()
	defer item.news.mutex.Unlock()
	if length := len(item.news.result); length > longestResult {
		w.Logf("kvqueue: item %s: its result has %d bytes, and %d are allowed; it is not kept", item.ID, length, longestResult)
		return nil
	}
	return item.news.result
}

// call runs the handler. A panic is its error.
func (w *worker) call(ctx context.Context, item *Item) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	return w.handle(ctx, item)
}

// record keeps an outcome to be acknowledged, unless its item was cancelled. The mutex is held.
func (w *worker) record(its *lease, outcome Outcome) {
	found := its.unfinished[outcome.ID]
	if found != nil && found.end != nil {
		// Frees what the context holds.
		found.end()
	}
	if w.leases[its.id] != its || found == nil {
		return
	}
	delete(its.unfinished, outcome.ID)
	if len(its.outcomes) == 0 {
		its.since = time.Now()
	}
	its.outcomes = append(its.outcomes, outcome)
	wake(its.changed)
}

// keep acknowledges the outcomes of a lease and extends it, until none of its items is left.
func (w *worker) keep(its *lease) {
	defer w.loops.Done()
	timeout := its.length / 3
	if timeout < 2*time.Second {
		timeout = 2 * time.Second
	}
	for {
		outcomes, reports, isKept := w.nextDue(its)
		if !isKept {
			return
		}
		w.requests <- struct{}{}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(w.base, timeout)
		var cancelled []string
		var err error
		if len(outcomes) > 0 {
			cancelled, err = w.client.Acknowledge(ctx, w.Queue, its.id, outcomes, false)
		} else {
			cancelled, err = w.client.Extend(ctx, w.Queue, its.id, reports...)
		}
		cancel()
		<-w.requests
		if isDenied(err) {
			w.abandon()
			w.fail(err)
		}
		w.mutex.Lock()
		if err == nil {
			w.accepted(its, len(outcomes), asked, cancelled)
		} else {
			if isTemporary(err) {
				its.returnReports(reports)
			}
			w.refused(its, len(outcomes), err)
		}
		w.mutex.Unlock()
	}
}

// nextDue waits until there is something to do for a lease: to acknowledge some outcomes, or without them, to extend it, with
// some reports. It is false if the lease has ended.
func (w *worker) nextDue(its *lease) ([]Outcome, []Report, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for w.leases[its.id] == its && w.base.Err() == nil {
		now, until := time.Now(), its.nextExtension()
		if len(its.outcomes) > 0 {
			at := its.acknowledgeAt(w.stopping.Err() != nil)
			if !at.After(now) {
				return its.nextOutcomes(), nil, true
			}
			if at.Before(until) {
				until = at
			}
		}
		if !its.nextExtension().After(now) {
			return nil, its.takeReports(), true
		}
		w.mutex.Unlock()
		wait(its.changed, until)
		w.mutex.Lock()
	}
	return nil, nil, false
}

// accepted: a daemon has acknowledged the first outcomes, which also extends the lease. The mutex is held.
func (w *worker) accepted(its *lease, count int, asked time.Time, cancelled []string) {
	its.extended(asked)
	if count > 0 {
		its.outcomes = append([]Outcome(nil), its.outcomes[count:]...)
		its.since, its.retryAt, its.pauses.failures = time.Now(), time.Time{}, 0
	} else {
		its.reportAt = its.extendAt
	}
	w.cancelItems(its, cancelled)
	if its.open() == 0 {
		w.forget(its)
	}
	wake(w.room)
}

// cancelItems ends the handlers of cancelled items, which are no part of the lease any more. The mutex is held.
func (w *worker) cancelItems(its *lease, ids []string) {
	for _, id := range ids {
		found := its.unfinished[id]
		if found == nil {
			continue
		}
		delete(its.unfinished, id)
		found.item.news.mutex.Lock()
		found.item.news.isCancelled = true
		found.item.news.mutex.Unlock()
		if found.end != nil {
			found.end()
		}
	}
	if len(ids) > 0 {
		all := w.waiting
		w.waiting = nil
		for _, each := range all {
			if each.lease != its || its.unfinished[each.item.ID] != nil {
				w.waiting = append(w.waiting, each)
			}
		}
	}
}

// refused: an acknowledgement of some outcomes has failed, or without outcomes, an extension. The mutex is held.
func (w *worker) refused(its *lease, count int, err error) {
	now, hasFailed := time.Now(), its.pauses.failures > 0
	switch {
	case w.base.Err() != nil:
		// The worker has ended with an error.
		return
	case isLost(err) && hasFailed && its.isWhole():
		// An earlier request may have acknowledged its last items: the answer to the next acknowledgement decides.
		its.extendAt, its.reportAt = now.Add(longestAfter), now.Add(longestAfter)
		if count > 0 {
			w.forget(its)
		}
	case isLost(err):
		w.expire(its)
		w.forget(its)
	case count == 0:
		w.Logf("kvqueue: queue %s: lease %s: cannot extend it: %v", w.Queue, its.id, err)
		pause := its.length / 10
		if pause > time.Second {
			pause = time.Second
		}
		its.extendAt, its.reportAt = now.Add(pause), now.Add(pause)
	case isTooLarge(err) && its.dropResults(count):
		w.Logf("kvqueue: queue %s: lease %s: its results are not kept: %v", w.Queue, its.id, err)
	case !isTemporary(err) || w.isLate(its):
		w.Logf("kvqueue: queue %s: lease %s: cannot acknowledge %d items; they will be redelivered: %v", w.Queue, its.id, count, err)
		w.forget(its)
	default:
		if !hasFailed {
			its.failingSince = now
		}
		pause := its.pauses.next(err)
		if !w.stoppedAt.IsZero() && pause > stopPause {
			pause = stopPause
		}
		its.retryAt = now.Add(pause)
		w.Logf("kvqueue: queue %s: lease %s: cannot acknowledge, trying again in %s: %v", w.Queue, its.id, pause.Round(time.Millisecond), err)
	}
	if now.After(its.deadline) {
		w.expire(its)
	}
}

// isLate reports whether the worker stops, and has tried for long enough. The mutex is held.
func (w *worker) isLate(its *lease) bool {
	isFailing := its.pauses.failures > 0 && time.Since(its.failingSince) > stopPatience
	return isFailing && !w.stoppedAt.IsZero() && time.Since(w.stoppedAt) > stopPatience
}

// expire tells the handlers that other workers may have the items of a lease. Its outcomes are still tried: they count if
// no daemon has noticed. The mutex is held.
func (w *worker) expire(its *lease) {
	if w.leases[its.id] == its && its.ctx.Err() == nil {
		w.Logf("kvqueue: queue %s: lease %s expired; its unacknowledged items will be redelivered", w.Queue, its.id)
		w.endHandlers(its)
	}
}

// forget ends a lease: all of its items are acknowledged, or the lease is lost. The mutex is held.
func (w *worker) forget(its *lease) {
	delete(w.leases, its.id)
	w.endHandlers(its)
}

// endHandlers ends the handlers' context, and releases the items that no handler has begun with. The mutex is held.
func (w *worker) endHandlers(its *lease) {
	its.extendAt = time.Now().Add(longestAfter)
	its.reportAt = its.extendAt
	its.endHandler()
	all := w.waiting
	w.waiting = nil
	for _, each := range all {
		if each.lease == its {
			w.record(its, Outcome{ID: each.item.ID, Outcome: "release"})
		} else {
			w.waiting = append(w.waiting, each)
		}
	}
	wake(w.room)
}
