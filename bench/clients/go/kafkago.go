package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
)

// kafkaGoProduce gives a writer all its records at once: it makes batches of them, one after the other to each
// partition, and sends a batch again that was not answered in its 10 s. It has no idempotence.
func kafkaGoProduce(work *Work, worker int) error {
	writer := &kafka.Writer{
		Addr:  kafka.TCP(strings.Split(work.Bootstrap, ",")...),
		Topic: work.Topic,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, partitions ...int) int {
			return partitions[int(work.partition(seqOf(message.Value)))%len(partitions)]
		}),
		RequiredAcks: kafka.RequireAll,
		Transport: &kafka.Transport{
			ClientID: work.ClientID,
			SASL:     plain.Mechanism{Username: work.User, Password: work.Password},
		},
	}
	defer writer.Close()
	messages := make([]kafka.Message, work.Records)
	for seq := range messages {
		messages[seq].Value = work.value(worker, seq)
	}
	ctx, cancel := context.WithTimeout(context.Background(), work.within())
	defer cancel()
	err := writer.WriteMessages(ctx, messages...)
	var each kafka.WriteErrors
	if err != nil && !errors.As(err, &each) {
		return err
	}
	for seq := range messages {
		if each != nil && each[seq] != nil {
			tell("fail", worker, seq, short(each[seq]))
		} else {
			tell("ack", worker, seq)
		}
	}
	return nil
}

func kafkaGoConsume(work *Work, group *reading) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     strings.Split(work.Bootstrap, ","),
		GroupID:     work.Group,
		Topic:       work.Topic,
		StartOffset: kafka.FirstOffset,
		Dialer: &kafka.Dialer{
			ClientID:      work.ClientID,
			Timeout:       10 * time.Second,
			DualStack:     true,
			SASLMechanism: plain.Mechanism{Username: work.User, Password: work.Password},
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-group.done
		cancel()
	}()
	next := time.Now().Add(commitEvery)
	var unmarked []kafka.Message
	commit := func() {
		if err := reader.CommitMessages(context.Background(), unmarked...); err != nil {
			tell("commit_failed", short(err))
		}
		unmarked, next = nil, time.Now().Add(commitEvery)
	}
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			commit()
			return reader.Close()
		}
		if err != nil {
			return err
		}
		group.got(message.Partition, message.Offset)
		unmarked = append(unmarked, message)
		if time.Now().After(next) {
			commit()
		}
	}
}
