package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig(work *Work) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = work.ClientID
	config.Net.SASL.Enable = true
	config.Net.SASL.User = work.User
	config.Net.SASL.Password = work.Password
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

// saramaIdempotent is what sarama asks for before it lets a producer be idempotent.
func saramaIdempotent(work *Work) *sarama.Config {
	config := saramaConfig(work)
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	return config
}

func saramaMessage(work *Work, worker, seq int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: work.Topic, Partition: work.partition(seq), Value: sarama.ByteEncoder(work.value(worker, seq)), Metadata: seq,
	}
}

func saramaProduce(work *Work, worker int) error {
	producer, err := sarama.NewAsyncProducer(strings.Split(work.Bootstrap, ","), saramaIdempotent(work))
	if err != nil {
		return err
	}
	go func() {
		for seq := range work.Records {
			producer.Input() <- saramaMessage(work, worker, seq)
		}
	}()
	deadline := time.After(work.within())
	for range work.Records {
		select {
		case message := <-producer.Successes():
			tell("ack", worker, message.Metadata)
		case failed := <-producer.Errors():
			tell("fail", worker, failed.Msg.Metadata, short(failed.Err))
		case <-deadline:
			return fmt.Errorf("not done within %v", work.within())
		}
	}
	return producer.Close()
}

func saramaTransact(work *Work, worker int) error {
	config := saramaIdempotent(work)
	config.Producer.Transaction.ID = work.transactionalID(worker)
	producer, err := sarama.NewSyncProducer(strings.Split(work.Bootstrap, ","), config)
	if err != nil {
		return err
	}
	one := func(from, to int) error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		messages := make([]*sarama.ProducerMessage, 0, to-from)
		for seq := from; seq < to; seq++ {
			messages = append(messages, saramaMessage(work, worker, seq))
		}
		if err := producer.SendMessages(messages); err != nil {
			return err
		}
		offset := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: int64(to), LeaderEpoch: -1}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{work.Topic: {offset}}
		if err := producer.AddOffsetsToTxn(offsets, fmt.Sprintf("%s-%d", work.Group, worker)); err != nil {
			return err
		}
		return producer.CommitTxn()
	}
	if err := runTransactions(work, worker, one, producer.AbortTxn); err != nil {
		return err
	}
	return producer.Close()
}

type saramaMember struct{ group *reading }

func (saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.group.got(int(message.Partition), message.Offset)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaConsume(work *Work, group *reading) error {
	config := saramaConfig(work)
	config.Consumer.Return.Errors = true
	member, err := sarama.NewConsumerGroup(strings.Split(work.Bootstrap, ","), work.Group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-group.done
		cancel()
	}()
	go func() {
		for err := range member.Errors() { // its own commits, each second by default, among them
			tell("commit_failed", short(err))
		}
	}()
	for ctx.Err() == nil {
		if err := member.Consume(ctx, []string{work.Topic}, saramaMember{group}); err != nil && ctx.Err() == nil {
			tell("error", short(err))
		}
	}
	return member.Close()
}
