package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"kvqueue.example/kvqueue"
)

// request names a method of the client, in the words of the other languages.
type request struct {
	Method, Queue string
	Arguments     []string
	Options       struct {
		Wait         *float64
		Deadline     float64
		Force        bool
		Create       bool
		Restart      bool
		Cron, Zone   string
		Every        float64
		ContentType  string `json:"content_type"`
		Attributes   map[string]string
		Missed       string
		MissedWindow float64 `json:"missed_window"`
		MissedMax    int     `json:"missed_max"`
		Overlap      string
		Jitter       float64
		After        [][2]string
		MissingOK    bool `json:"missing_ok"`
	}
}

// shown is an item as the tests read it. Results are written as Latin-1.
type shown struct {
	State    string  `json:"state"`
	Outcome  *string `json:"outcome"`
	HasEnded bool    `json:"has_ended"`
	Attempts int     `json:"attempts"`
	Result   *string `json:"result"`
	Progress []any   `json:"progress"`
}

func shownOf(item kvqueue.ItemView, err error) (any, error) {
	found := shown{State: item.State, HasEnded: item.HasEnded(), Attempts: item.Attempts}
	if item.Outcome != "" {
		found.Outcome = &item.Outcome
	}
	if item.Result != nil {
		letters := make([]rune, len(item.Result))
		for n, each := range item.Result {
			letters[n] = rune(each)
		}
		text := string(letters)
		found.Result = &text
	}
	if item.Progress != nil {
		found.Progress = []any{item.Progress.Percent, item.Progress.Message}
	}
	return found, err
}

// call prints what a method of the client returns, or its error.
func call(urls []string) error {
	var wanted request
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return err
	}
	client, err := kvqueue.NewClient(urls, "", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := ask(client, wanted)
	var refused *kvqueue.APIError
	if errors.As(err, &refused) {
		answer = map[string]string{"error": refused.Code, "message": refused.Error()}
	} else if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func ask(client *kvqueue.Client, wanted request) (any, error) {
	ctx, queue, options := context.Background(), wanted.Queue, wanted.Options
	first, second := "", ""
	if len(wanted.Arguments) > 0 {
		first = wanted.Arguments[0]
	}
	if len(wanted.Arguments) > 1 {
		second = wanted.Arguments[1]
	}
	switch wanted.Method {
	case "show_item":
		return shownOf(client.ShowItem(ctx, queue, first))
	case "wait_item":
		wait := 30.0
		if options.Wait != nil {
			wait = *options.Wait
		}
		return shownOf(client.WaitItem(ctx, queue, first, seconds(wait)))
	case "cancel_item":
		return client.CancelItem(ctx, queue, first)
	case "new_batch":
		return client.NewBatch(ctx, queue, kvqueue.NewItem{Payload: []byte(first)}, seconds(options.Deadline))
	case "push_after":
		after := []kvqueue.ItemOf{}
		for _, each := range options.After {
			after = append(after, kvqueue.ItemOf{Queue: each[0], ID: each[1]})
		}
		return client.PushAfter(ctx, queue, kvqueue.NewItem{Payload: []byte(first)}, after, kvqueue.AfterOptions{MissingOK: options.MissingOK})
	case "commit_batch":
		return client.CommitBatch(ctx, queue, first)
	case "show_batch":
		return client.ShowBatch(ctx, queue, first)
	case "list_batches":
		return client.ListBatches(ctx, queue)
	case "cancel_batch":
		return client.CancelBatch(ctx, queue, first)
	case "list_schedules":
		return client.ListSchedules(ctx, queue)
	case "show_schedule":
		return client.ShowSchedule(ctx, queue, first)
	case "put_schedule":
		return client.PutSchedule(ctx, queue, first, kvqueue.ScheduleDefinition{
			Payload: []byte(second), Cron: options.Cron, Zone: options.Zone, Every: seconds(options.Every), ContentType: options.ContentType,
			Attributes: options.Attributes, Missed: options.Missed, MissedWindow: seconds(options.MissedWindow),
			MissedMax: options.MissedMax, Overlap: options.Overlap, Jitter: seconds(options.Jitter),
			Create: options.Create,
		})
	case "remove_schedule":
		return nil, client.RemoveSchedule(ctx, queue, first, options.Force)
	case "pause_schedule":
		return nil, client.PauseSchedule(ctx, queue, first)
	case "resume_schedule":
		return nil, client.ResumeSchedule(ctx, queue, first, options.Restart)
	case "fire_schedule":
		return client.FireSchedule(ctx, queue, first)
	case "schedule_history":
		return client.ScheduleHistory(ctx, queue, first)
	}
	return nil, fmt.Errorf("there is no method %s", wanted.Method)
}
