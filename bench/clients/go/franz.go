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

func franzOptions(work *Work) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(work.Bootstrap, ",")...),
		kgo.ClientID(work.ClientID),
		kgo.SASL(plain.Auth{User: work.User, Pass: work.Password}.AsMechanism()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func franzClient(work *Work, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(franzOptions(work), options...)...)
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
		ctx, cancel := context.WithTimeout(context.Background(), pollWithin)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				tell("error", short(err))
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { group.got(int(record.Partition), record.Offset) })
		over := group.isOver()
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

// franzStream copies a topic exactly once: what is read, written and committed as read is one transaction.
func franzStream(work *Work, member int, group *reading) error {
	session, err := kgo.NewGroupTransactSession(append(franzOptions(work),
		kgo.TransactionalID(work.transactionalID(member)),
		kgo.ConsumerGroup(work.Group),
		kgo.ConsumeTopics(work.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), pollWithin)
		fetches := session.PollFetches(ctx)
		cancel()
		if group.isOver() {
			return nil
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := franzCopy(work, session, fetches, group); err != nil {
			return err
		}
	}
}

func franzCopy(work *Work, session *kgo.GroupTransactSession, fetches kgo.Fetches, group *reading) error {
	if err := session.Begin(); err != nil {
		return err
	}
	aborted := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		session.Produce(context.Background(), &kgo.Record{
			Topic: work.Output, Partition: record.Partition, Key: record.Key, Value: record.Value,
		}, aborted.Promise())
	})
	wanted := kgo.TransactionEndTry(aborted.Err() == nil)
	committed, err := session.End(context.Background(), wanted)
	if err != nil {
		tell("commit_failed", short(err))
		return nil
	}
	if !committed {
		tell("commit_failed", "aborted, wanted a commit:", wanted, "first error:", aborted.Err())
		return nil
	}
	fetches.EachRecord(func(record *kgo.Record) { group.got(int(record.Partition), record.Offset) })
	return nil
}
