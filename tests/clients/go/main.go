// The program of the tests for Go: the protocol is in test_clients.py.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kvqueue.example/kvqueue"
)

var (
	mutex sync.Mutex
	seen  = map[int]bool{}
)

func isFirst(n int) bool {
	mutex.Lock()
	defer mutex.Unlock()
	was := seen[n]
	seen[n] = true
	return !was
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

type noText struct{}

func (noText) Error() string { panic("no text") }

// What handlers do wrong. The fake daemon accepts only what a daemon does.
var wrong = map[string]error{
	"half a pair":           errors.New(strings.Repeat("x", 999) + "\xed\xb3\xbf"),
	"dead with half a pair": kvqueue.Dead("\xed\xa0\xbd"),
	"no text":               noText{},
	"not a number":          kvqueue.RetryAfter(time.Duration(-1<<63), "x"),
	"text for a number":     kvqueue.Retry("x"),
}

// What handlers give.
var results = map[string][]byte{
	"text": []byte("r\u00e9sultat"), "bytes": {255, 0}, "empty": {}, "too long": bytes.Repeat([]byte("x"), 90_001),
	"long": bytes.Repeat([]byte("x"), 90_000), "half a pair": []byte("?"),
}

// untilCancelled reports progress, and waits until the item is cancelled.
func untilCancelled(ctx context.Context, item *kvqueue.Item, n int) error {
	item.ReportProgress(-1, "begun")
	item.ReportProgress(50.5, "half \u00e4"+strings.Repeat("x", 300))
	select {
	case <-ctx.Done():
		if !item.IsCancelled() {
			return kvqueue.Dead("its lease is lost")
		}
		fmt.Printf("end %d %d\n", n, item.Attempt)
		return ctx.Err()
	case <-time.After(20 * time.Second):
		return kvqueue.Dead("it was not cancelled")
	}
}

func handle(ctx context.Context, item *kvqueue.Item) error {
	var wanted struct {
		N            int
		Sleep, Block float64
		Do, Result   string
	}
	if err := json.Unmarshal(item.Payload, &wanted); err != nil {
		return kvqueue.Dead(err.Error())
	}
	fmt.Printf("begin %d %d\n", wanted.N, item.Attempt)
	if wanted.Do == "until lost" {
		select {
		case <-ctx.Done():
			fmt.Printf("end %d %d\n", wanted.N, item.Attempt)
			return fmt.Errorf("wrapped: %w", ctx.Err())
		case <-time.After(20 * time.Second):
			return kvqueue.Dead("its lease is not lost")
		}
	}
	if wanted.Do == "progress" {
		return untilCancelled(ctx, item, wanted.N)
	}
	if result := results[wanted.Result]; result != nil {
		item.SetResult(result)
	}
	time.Sleep(seconds(wanted.Sleep + wanted.Block))
	first := isFirst(wanted.N)
	switch {
	case wanted.Do == "dead":
		return fmt.Errorf("wrapped: %w", kvqueue.Dead("never"))
	case wanted.Do == "fail":
		panic("always")
	case wanted.Do == "retry" && first:
		return kvqueue.RetryAfter(0, "once more")
	case wanted.Do == "release" && first:
		return kvqueue.Release()
	case wanted.Do == "throttle" && first:
		return kvqueue.Throttle("queue", 500*time.Millisecond, "slow down")
	case wanted.Do == "key":
		return kvqueue.Dead(string(item.Key))
	case wrong[wanted.Do] != nil:
		return wrong[wanted.Do]
	}
	fmt.Printf("end %d %d\n", wanted.N, item.Attempt)
	return nil
}

func push(urls []string) error {
	var wanted struct {
		Queue, Key string
		Items      []struct {
			Payload     any
			Unique      string
			ContentType string `json:"content_type"`
			Attributes  map[string]string
			Delay, TTL  float64
			UniqueFor   float64 `json:"unique_for"`
			Replace     bool
			Batch       string
			Key         *string
		}
	}
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return err
	}
	var items []kvqueue.NewItem
	for _, each := range wanted.Items {
		item := kvqueue.NewItem{
			Payload: each.Payload, Unique: each.Unique, ContentType: each.ContentType, Attributes: each.Attributes,
			Delay: seconds(each.Delay), TTL: seconds(each.TTL), UniqueFor: seconds(each.UniqueFor), Replace: each.Replace, Batch: each.Batch,
		}
		if each.Key != nil {
			item.Key = []byte(*each.Key)
		}
		items = append(items, item)
	}
	client, err := kvqueue.NewClient(urls, "", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	pushed, err := client.Push(context.Background(), wanted.Queue, items, wanted.Key)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(pushed)
}

func work(urls []string) error {
	number := func(name string) float64 {
		found, _ := strconv.ParseFloat(os.Getenv(name), 64)
		return found
	}
	config := kvqueue.Config{
		URLs: urls, Queue: os.Getenv("QUEUE"), Concurrency: int(number("CONCURRENCY")), Batch: int(number("BATCH")),
		Lease: seconds(number("LEASE")), Wait: seconds(number("WAIT")),
	}
	if file := os.Getenv("CA_FILE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		config.TLS.RootCAs.AppendCertsFromPEM(text)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		// A second signal ends the program at once.
		<-ctx.Done()
		stop()
	}()
	return kvqueue.Work(ctx, config, handle)
}

func main() {
	urls, run := strings.Fields(os.Getenv("URLS")), work
	if len(os.Args) > 1 {
		run = map[string]func([]string) error{"push": push, "call": call}[os.Args[1]]
	}
	if err := run(urls); err != nil {
		var refused *kvqueue.APIError
		fmt.Fprintln(os.Stderr, "refused:", err, errors.As(err, &refused))
		os.Exit(1)
	}
}
