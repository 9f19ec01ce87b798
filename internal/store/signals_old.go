package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// firstSignals is the schema version from which on topics have rows. Releases before it
// had two files of other formats in place of the files of a [Watch].
const firstSignals = 10

// moveSignals gives the files of older releases the names of today. The migration, which
// follows, adds the rows. A file is never missing where a row is there, so a process that
// dies in between leaves a topic that is read too often and not too seldom.
func (d database) moveSignals(dir string) error {
	for from, topic := range map[string]string{filepath.Join(dir, "gate"): "gate", d.path + "-limits": "limits"} {
		to := signalFile(d.real, topic)
		if from == to {
			continue
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// alignSignals makes the rows and the files of topics that an older release has used say
// the same.
func (s *Store) alignSignals(ctx context.Context) error {
	topics, err := s.topics(ctx)
	if err != nil {
		return fmt.Errorf("read the topics: %w", err)
	}
	for _, topic := range topics {
		if err := s.Watch(topic).Update(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) topics(ctx context.Context) (topics []string, err error) {
	rows, err := s.conn.QueryContext(ctx, selectTopics)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var topic string
		if err := rows.Scan(&topic); err != nil {
			return nil, err
		}
		topics = append(topics, topic)
	}
	return topics, rows.Err()
}
