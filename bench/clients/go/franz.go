package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// franzBatchBytes is the batch of Java and the others: by default all that waits for a partition, up to 1 MB, is one.
const franzBatchBytes = 16_384

func franzClient(work *Work, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(work.Bootstrap, ",")...),
		kgo.ClientID(work.ClientID),
		kgo.SASL(plain.Auth{User: work.User, Pass: work.Password}.AsMechanism()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
}

func franzRecord(work *Work, worker, seq int) *kgo.Record {
	return &kgo.Record{Topic: work.Topic, Partition: work.partition(seq), Value: work.value(worker, seq)}
}

func franzProduce(work *Work, worker int) error {
	client, err := franzClient(work, kgo.ProducerBatchMaxBytes(franzBatchBytes))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), work.within())
	defer cancel()
	for seq := range work.Records {
		client.Produce(ctx, franzRecord(work, worker, seq), func(_ *kgo.Record, err error) {
			if err != nil {
				tell("fail", worker, seq, short(err))
			} else {
				tell("ack", worker, seq)
			}
		})
	}
	return client.Flush(ctx)
}

func franzTransact(work *Work, worker int) error {
	client, err := franzClient(work, kgo.TransactionalID(work.transactionalID(worker)))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	one := func(from, to int) error {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		records := make([]*kgo.Record, 0, to-from)
		for seq := from; seq < to; seq++ {
			records = append(records, franzRecord(work, worker, seq))
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		return client.EndTransaction(ctx, kgo.TryCommit)
	}
	abort := func() error {
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return client.EndTransaction(ctx, kgo.TryAbort)
	}
	return runTransactions(work, worker, one, abort)
}

func franzConsume(work *Work, group *reading) error {
	client, err := franzClient(
		work,
		kgo.ConsumerGroup(work.Group),
		kgo.ConsumeTopics(work.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	next := time.Now().Add(commitEvery)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				tell("error", short(err))
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { group.got(int(record.Partition), record.Offset) })
		over := false
		select {
		case <-group.done:
			over = true
		default:
		}
		if over || time.Now().After(next) {
			next = time.Now().Add(commitEvery)
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				tell("commit_failed", short(err))
			}
		}
		if over {
			return nil
		}
	}
}
