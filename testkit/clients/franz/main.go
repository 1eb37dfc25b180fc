// Produces records with franz-go as its users do: idempotent, all else by default.
//
//	franz BOOTSTRAP TOPIC CLIENT_ID [TRANSACTIONAL_ID RECORDS_PER_TRANSACTION] < records
//
// A line of standard input is a record: its partition, a space, its value in hexadecimal digits. Ends with 0
// once the broker has acknowledged every record, or has committed each transaction, with 1 and the first error if it has not.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const within = 150 * time.Second

func main() {
	if len(os.Args) != 4 && len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "franz BOOTSTRAP TOPIC CLIENT_ID [TRANSACTIONAL_ID RECORDS_PER_TRANSACTION] < records")
		os.Exit(2)
	}
	if err := produce(strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(bootstrap []string, topic, clientID string, transactions []string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap...),
		kgo.ClientID(clientID),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	perTransaction := 0
	if len(transactions) > 0 {
		number, err := strconv.Atoi(transactions[1])
		if err != nil || number < 1 {
			return fmt.Errorf("not a number of records: %q", transactions[1])
		}
		perTransaction = number
		options = append(options, kgo.TransactionalID(transactions[0]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()

	var mutex sync.Mutex
	var failed error
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	sent := 0
	for lines.Scan() {
		if perTransaction > 0 && sent%perTransaction == 0 {
			if sent > 0 {
				if err := commit(ctx, client); err != nil {
					return err
				}
			}
			if err := client.BeginTransaction(); err != nil {
				return err
			}
		}
		sent++
		record, err := parse(lines.Text())
		if err != nil {
			return err
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if perTransaction > 0 && sent > 0 {
		if err := commit(ctx, client); err != nil {
			return err
		}
	} else if err := client.Flush(ctx); err != nil {
		return err
	}
	mutex.Lock()
	defer mutex.Unlock()
	return failed
}

func commit(ctx context.Context, client *kgo.Client) error {
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

func parse(line string) (*kgo.Record, error) {
	partition, value, found := strings.Cut(line, " ")
	if !found {
		return nil, fmt.Errorf("not a record: %q", line)
	}
	number, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return nil, err
	}
	bytes, err := hex.DecodeString(value)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{Partition: int32(number), Value: bytes}, nil
}
