// Drives one Go client library of Kafka: franz-go, sarama or kafka-go.
//
//	clients WORK.json
//
// What the file asks for, and the lines that come back, are those of bench/clients/drivers/told.py.
// Every setting that is not named has the library's own default.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	commitEvery      = time.Second
	pollWithin       = 200 * time.Millisecond
	transactionTries = 5
	longestText      = 300
)

// Work is what a driver is asked to do.
type Work struct {
	Client         string  `json:"client"`
	Role           string  `json:"role"`
	Bootstrap      string  `json:"bootstrap"`
	User           string  `json:"user"`
	Password       string  `json:"password"`
	ClientID       string  `json:"client_id"`
	Topic          string  `json:"topic"`
	Partitions     int     `json:"partitions"`
	Workers        int     `json:"workers"`
	Records        int     `json:"records"`
	RecordBytes    int     `json:"record_bytes"`
	PerTransaction int     `json:"per_transaction"`
	Group          string  `json:"group"`
	Output         string  `json:"output"`
	WithinS        float64 `json:"within_s"`
}

// value is a numbered record, filled with noise: franz-go compresses by default, and the load is one of bytes.
func (w *Work) value(worker, seq int) []byte {
	value := make([]byte, w.RecordBytes)
	rand.NewChaCha8([32]byte{byte(worker), byte(seq), byte(seq >> 8)}).Read(value)
	copy(value, fmt.Sprintf("%d:%d:", worker, seq))
	return value
}

func (w *Work) partition(seq int) int32 { return int32(seq % w.Partitions) }

func (w *Work) transactionalID(worker int) string { return fmt.Sprintf("%s-%d", w.ClientID, worker) }

func (w *Work) within() time.Duration { return time.Duration(w.WithinS * float64(time.Second)) }

// seqOf is the number that value wrote into a record.
func seqOf(value []byte) int {
	seq, _ := strconv.Atoi(strings.SplitN(string(value[:min(len(value), 40)]), ":", 3)[1])
	return seq
}

var writing sync.Mutex

func tell(words ...any) {
	line := strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(words...), "\n"), "\n", " ")
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.WriteString(line + "\n")
}

func short(err error) string {
	text := fmt.Sprintf("%T: %v", err, err)
	return text[:min(len(text), longestText)]
}

// reading is what a group has read in all; its members stop once it is everything.
type reading struct {
	mutex    sync.Mutex
	work     *Work
	seen     map[[2]int64]bool
	deadline time.Time
	done     chan struct{}
	closing  bool
}

func newReading(work *Work) *reading {
	return &reading{
		work: work, seen: map[[2]int64]bool{}, deadline: time.Now().Add(work.within()), done: make(chan struct{}),
	}
}

func (r *reading) got(partition int, offset int64) {
	tell("read", partition, offset)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen[[2]int64{int64(partition), offset}] = true
	if len(r.seen) >= r.work.Records {
		r.end()
	}
}

func (r *reading) isOver() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.closing
}

func (r *reading) end() {
	if !r.closing {
		r.closing = true
		tell("closing", time.Now().UnixMilli())
		close(r.done)
	}
}

func (r *reading) watchTime() {
	select {
	case <-r.done:
	case <-time.After(time.Until(r.deadline)):
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.end()
	}
}

// runTransactions does all of a worker's transactions, each until it is committed or has failed for good.
func runTransactions(work *Work, worker int, one func(from, to int) error, abort func() error) error {
	for from := 0; from < work.Records; from += work.PerTransaction {
		to := min(from+work.PerTransaction, work.Records)
		for tries := transactionTries; ; tries-- {
			err := one(from, to)
			if err == nil {
				for seq := from; seq < to; seq++ {
					tell("ack", worker, seq)
				}
				break
			}
			tell("commit_failed", short(err))
			if tries == 1 {
				return err
			}
			if err := abort(); err != nil {
				return err
			}
		}
	}
	return nil
}

type library struct {
	produce  func(*Work, int) error
	transact func(*Work, int) error
	consume  func(*Work, *reading) error
	stream   func(*Work, int, *reading) error
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	work := &Work{}
	if err := json.Unmarshal(text, work); err != nil {
		panic(err)
	}
	chosen := map[string]library{
		"franz-go": {franzProduce, franzTransact, franzConsume, franzStream},
		"sarama":   {saramaProduce, saramaTransact, saramaConsume, nil},
		"kafka-go": {kafkaGoProduce, nil, kafkaGoConsume, nil},
	}[work.Client]
	group := newReading(work)
	if work.Role == "consume" || work.Role == "stream" {
		go group.watchTime()
	}
	var all sync.WaitGroup
	for worker := range work.Workers {
		all.Go(func() {
			var err error
			switch work.Role {
			case "produce":
				err = chosen.produce(work, worker)
			case "transact":
				err = chosen.transact(work, worker)
			case "consume":
				err = chosen.consume(work, group)
			case "stream":
				err = chosen.stream(work, worker, group)
			}
			if err != nil {
				tell("broke", short(err))
			}
		})
	}
	all.Wait()
	tell("end")
}
