"""Every message of Kafka 4.3.1, for the cold path, and for the layout of requests that are few.

Generated: do not edit. `python -m tools.protocol_tables` wrote it from common/message/*.json in
org.apache.kafka:kafka-clients:4.3.1 (Apache-2.0; see NOTICE).
Jar's sha256: 52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36

One JSON text a message, parsed on first use (spec_model.load_message); one field a line, so that a diff
between two versions of Kafka can be read: [name, type, versions, {options}].
"""

from typing import Final

REQUEST_HEADER: Final = """{"name":"RequestHeader","versions":"1-2","flexible":"2+","fields":[
 ["requestApiKey","int16","0+"],
 ["requestApiVersion","int16","0+"],
 ["correlationId","int32","0+"],
 ["clientId","string","1+",{"nullable":"1+","flexible":"none"}]]}"""
RESPONSE_HEADER: Final = """{"name":"ResponseHeader","versions":"0-1","flexible":"1+","fields":[
 ["correlationId","int32","0+"]]}"""

REQUESTS: Final[dict[int, str]] = {
    0: """{"name":"ProduceRequest","versions":"3-13","flexible":"9+","fields":[
 ["transactionalId","string","3+",{"nullable":"3+","default":null}],
 ["acks","int16","0+"],
 ["timeoutMs","int32","0+"],
 ["topicData","[]struct","0+",{"fields":[
  ["name","string","0-12"],
  ["topicId","uuid","13+"],
  ["partitionData","[]struct","0+",{"fields":[
   ["index","int32","0+"],
   ["records","records","0+",{"nullable":"0+"}]]}]]}]]}""",
    1: """{"name":"FetchRequest","versions":"4-18","flexible":"12+","fields":[
 ["clusterId","string","12+",{"nullable":"12+","tagged":"12+","tag":0,"default":null}],
 ["replicaId","int32","0-14",{"default":-1}],
 ["replicaState","struct","15+",{"tagged":"15+","tag":1,"fields":[
  ["replicaId","int32","15+",{"default":-1}],
  ["replicaEpoch","int64","15+",{"default":-1}]]}],
 ["maxWaitMs","int32","0+"],
 ["minBytes","int32","0+"],
 ["maxBytes","int32","3+",{"default":2147483647}],
 ["isolationLevel","int8","4+",{"default":0}],
 ["sessionId","int32","7+",{"default":0}],
 ["sessionEpoch","int32","7+",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["topic","string","0-12"],
  ["topicId","uuid","13+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["currentLeaderEpoch","int32","9+",{"default":-1}],
   ["fetchOffset","int64","0+"],
   ["lastFetchedEpoch","int32","12+",{"default":-1}],
   ["logStartOffset","int64","5+",{"default":-1}],
   ["partitionMaxBytes","int32","0+"],
   ["replicaDirectoryId","uuid","17+",{"tagged":"17+","tag":0}],
   ["highWatermark","int64","18+",{"tagged":"18+","tag":1,"default":9223372036854775807}]]}]]}],
 ["forgottenTopicsData","[]struct","7+",{"fields":[
  ["topic","string","7-12"],
  ["topicId","uuid","13+"],
  ["partitions","[]int32","7+"]]}],
 ["rackId","string","11+"]]}""",
    2: """{"name":"ListOffsetsRequest","versions":"1-11","flexible":"6+","fields":[
 ["replicaId","int32","0+"],
 ["isolationLevel","int8","2+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["currentLeaderEpoch","int32","4+",{"default":-1}],
   ["timestamp","int64","0+"]]}]]}],
 ["timeoutMs","int32","10+"]]}""",
    3: """{"name":"MetadataRequest","versions":"0-13","flexible":"9+","fields":[
 ["topics","[]struct","0+",{"nullable":"1+","fields":[
  ["topicId","uuid","10+"],
  ["name","string","0+",{"nullable":"10+"}]]}],
 ["allowAutoTopicCreation","bool","4+",{"default":true}],
 ["includeClusterAuthorizedOperations","bool","8-10"],
 ["includeTopicAuthorizedOperations","bool","8+"]]}""",
    8: """{"name":"OffsetCommitRequest","versions":"2-10","flexible":"8+","fields":[
 ["groupId","string","0+"],
 ["generationIdOrMemberEpoch","int32","1+",{"default":-1}],
 ["memberId","string","1+"],
 ["groupInstanceId","string","7+",{"nullable":"7+","default":null}],
 ["retentionTimeMs","int64","2-4",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0-9"],
  ["topicId","uuid","10+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["committedOffset","int64","0+"],
   ["committedLeaderEpoch","int32","6+",{"default":-1}],
   ["committedMetadata","string","0+",{"nullable":"0+"}]]}]]}]]}""",
    9: """{"name":"OffsetFetchRequest","versions":"1-10","flexible":"6+","fields":[
 ["groupId","string","0-7"],
 ["topics","[]struct","0-7",{"nullable":"2-7","fields":[
  ["name","string","0-7"],
  ["partitionIndexes","[]int32","0-7"]]}],
 ["groups","[]struct","8+",{"fields":[
  ["groupId","string","8+"],
  ["memberId","string","9+",{"nullable":"9+","default":null}],
  ["memberEpoch","int32","9+",{"default":-1}],
  ["topics","[]struct","8+",{"nullable":"8+","fields":[
   ["name","string","8-9"],
   ["topicId","uuid","10+"],
   ["partitionIndexes","[]int32","8+"]]}]]}],
 ["requireStable","bool","7+",{"default":false}]]}""",
    10: """{"name":"FindCoordinatorRequest","versions":"0-6","flexible":"3+","fields":[
 ["key","string","0-3"],
 ["keyType","int8","1+",{"default":0}],
 ["coordinatorKeys","[]string","4+"]]}""",
    11: """{"name":"JoinGroupRequest","versions":"0-9","flexible":"6+","fields":[
 ["groupId","string","0+"],
 ["sessionTimeoutMs","int32","0+"],
 ["rebalanceTimeoutMs","int32","1+",{"default":-1}],
 ["memberId","string","0+"],
 ["groupInstanceId","string","5+",{"nullable":"5+","default":null}],
 ["protocolType","string","0+"],
 ["protocols","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["metadata","bytes","0+"]]}],
 ["reason","string","8+",{"nullable":"8+","default":null}]]}""",
    12: """{"name":"HeartbeatRequest","versions":"0-4","flexible":"4+","fields":[
 ["groupId","string","0+"],
 ["generationId","int32","0+"],
 ["memberId","string","0+"],
 ["groupInstanceId","string","3+",{"nullable":"3+","default":null}]]}""",
    13: """{"name":"LeaveGroupRequest","versions":"0-5","flexible":"4+","fields":[
 ["groupId","string","0+"],
 ["memberId","string","0-2"],
 ["members","[]struct","3+",{"fields":[
  ["memberId","string","3+"],
  ["groupInstanceId","string","3+",{"nullable":"3+","default":null}],
  ["reason","string","5+",{"nullable":"5+","default":null}]]}]]}""",
    14: """{"name":"SyncGroupRequest","versions":"0-5","flexible":"4+","fields":[
 ["groupId","string","0+"],
 ["generationId","int32","0+"],
 ["memberId","string","0+"],
 ["groupInstanceId","string","3+",{"nullable":"3+","default":null}],
 ["protocolType","string","5+",{"nullable":"5+","default":null}],
 ["protocolName","string","5+",{"nullable":"5+","default":null}],
 ["assignments","[]struct","0+",{"fields":[
  ["memberId","string","0+"],
  ["assignment","bytes","0+"]]}]]}""",
    15: """{"name":"DescribeGroupsRequest","versions":"0-6","flexible":"5+","fields":[
 ["groups","[]string","0+"],
 ["includeAuthorizedOperations","bool","3+"]]}""",
    16: """{"name":"ListGroupsRequest","versions":"0-5","flexible":"3+","fields":[
 ["statesFilter","[]string","4+"],
 ["typesFilter","[]string","5+"]]}""",
    17: """{"name":"SaslHandshakeRequest","versions":"0-1","flexible":"none","fields":[
 ["mechanism","string","0+"]]}""",
    18: """{"name":"ApiVersionsRequest","versions":"0-4","flexible":"3+","fields":[
 ["clientSoftwareName","string","3+"],
 ["clientSoftwareVersion","string","3+"]]}""",
    19: """{"name":"CreateTopicsRequest","versions":"2-7","flexible":"5+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["numPartitions","int32","0+"],
  ["replicationFactor","int16","0+"],
  ["assignments","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["brokerIds","[]int32","0+"]]}],
  ["configs","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["value","string","0+",{"nullable":"0+"}]]}]]}],
 ["timeoutMs","int32","0+",{"default":60000}],
 ["validateOnly","bool","1+",{"default":false}]]}""",
    20: """{"name":"DeleteTopicsRequest","versions":"1-6","flexible":"4+","fields":[
 ["topics","[]struct","6+",{"fields":[
  ["name","string","6+",{"nullable":"6+","default":null}],
  ["topicId","uuid","6+"]]}],
 ["topicNames","[]string","0-5"],
 ["timeoutMs","int32","0+"]]}""",
    21: """{"name":"DeleteRecordsRequest","versions":"0-2","flexible":"2+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["offset","int64","0+"]]}]]}],
 ["timeoutMs","int32","0+"]]}""",
    22: """{"name":"InitProducerIdRequest","versions":"0-6","flexible":"2+","fields":[
 ["transactionalId","string","0+",{"nullable":"0+"}],
 ["transactionTimeoutMs","int32","0+"],
 ["producerId","int64","3+",{"default":-1}],
 ["producerEpoch","int16","3+",{"default":-1}],
 ["enable2Pc","bool","6+",{"default":false}],
 ["keepPreparedTxn","bool","6+",{"default":false}]]}""",
    23: """{"name":"OffsetForLeaderEpochRequest","versions":"2-4","flexible":"4+","fields":[
 ["replicaId","int32","3+",{"default":-2}],
 ["topics","[]struct","0+",{"fields":[
  ["topic","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["currentLeaderEpoch","int32","2+",{"default":-1}],
   ["leaderEpoch","int32","0+"]]}]]}]]}""",
    24: """{"name":"AddPartitionsToTxnRequest","versions":"0-5","flexible":"3+","fields":[
 ["transactions","[]struct","4+",{"fields":[
  ["transactionalId","string","4+"],
  ["producerId","int64","4+"],
  ["producerEpoch","int16","4+"],
  ["verifyOnly","bool","4+",{"default":false}],
  ["topics","[]struct","4+",{"fields":[
   ["name","string","0+"],
   ["partitions","[]int32","0+"]]}]]}],
 ["v3AndBelowTransactionalId","string","0-3"],
 ["v3AndBelowProducerId","int64","0-3"],
 ["v3AndBelowProducerEpoch","int16","0-3"],
 ["v3AndBelowTopics","[]struct","0-3",{"fields":[
  ["name","string","0+"],
  ["partitions","[]int32","0+"]]}]]}""",
    25: """{"name":"AddOffsetsToTxnRequest","versions":"0-4","flexible":"3+","fields":[
 ["transactionalId","string","0+"],
 ["producerId","int64","0+"],
 ["producerEpoch","int16","0+"],
 ["groupId","string","0+"]]}""",
    26: """{"name":"EndTxnRequest","versions":"0-5","flexible":"3+","fields":[
 ["transactionalId","string","0+"],
 ["producerId","int64","0+"],
 ["producerEpoch","int16","0+"],
 ["committed","bool","0+"]]}""",
    27: """{"name":"WriteTxnMarkersRequest","versions":"1-2","flexible":"1+","fields":[
 ["markers","[]struct","0+",{"fields":[
  ["producerId","int64","0+"],
  ["producerEpoch","int16","0+"],
  ["transactionResult","bool","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["partitionIndexes","[]int32","0+"]]}],
  ["coordinatorEpoch","int32","0+"],
  ["transactionVersion","int8","2+",{"default":0}]]}]]}""",
    28: """{"name":"TxnOffsetCommitRequest","versions":"0-5","flexible":"3+","fields":[
 ["transactionalId","string","0+"],
 ["groupId","string","0+"],
 ["producerId","int64","0+"],
 ["producerEpoch","int16","0+"],
 ["generationId","int32","3+",{"default":-1}],
 ["memberId","string","3+"],
 ["groupInstanceId","string","3+",{"nullable":"3+","default":null}],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["committedOffset","int64","0+"],
   ["committedLeaderEpoch","int32","2+",{"default":-1}],
   ["committedMetadata","string","0+",{"nullable":"0+"}]]}]]}]]}""",
    29: """{"name":"DescribeAclsRequest","versions":"1-3","flexible":"2+","fields":[
 ["resourceTypeFilter","int8","0+"],
 ["resourceNameFilter","string","0+",{"nullable":"0+"}],
 ["patternTypeFilter","int8","1+",{"default":3}],
 ["principalFilter","string","0+",{"nullable":"0+"}],
 ["hostFilter","string","0+",{"nullable":"0+"}],
 ["operation","int8","0+"],
 ["permissionType","int8","0+"]]}""",
    30: """{"name":"CreateAclsRequest","versions":"1-3","flexible":"2+","fields":[
 ["creations","[]struct","0+",{"fields":[
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["resourcePatternType","int8","1+",{"default":3}],
  ["principal","string","0+"],
  ["host","string","0+"],
  ["operation","int8","0+"],
  ["permissionType","int8","0+"]]}]]}""",
    31: """{"name":"DeleteAclsRequest","versions":"1-3","flexible":"2+","fields":[
 ["filters","[]struct","0+",{"fields":[
  ["resourceTypeFilter","int8","0+"],
  ["resourceNameFilter","string","0+",{"nullable":"0+"}],
  ["patternTypeFilter","int8","1+",{"default":3}],
  ["principalFilter","string","0+",{"nullable":"0+"}],
  ["hostFilter","string","0+",{"nullable":"0+"}],
  ["operation","int8","0+"],
  ["permissionType","int8","0+"]]}]]}""",
    32: """{"name":"DescribeConfigsRequest","versions":"1-4","flexible":"4+","fields":[
 ["resources","[]struct","0+",{"fields":[
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["configurationKeys","[]string","0+",{"nullable":"0+"}]]}],
 ["includeSynonyms","bool","1+",{"default":false}],
 ["includeDocumentation","bool","3+",{"default":false}]]}""",
    33: """{"name":"AlterConfigsRequest","versions":"0-2","flexible":"2+","fields":[
 ["resources","[]struct","0+",{"fields":[
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["configs","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["value","string","0+",{"nullable":"0+"}]]}]]}],
 ["validateOnly","bool","0+"]]}""",
    34: """{"name":"AlterReplicaLogDirsRequest","versions":"1-2","flexible":"2+","fields":[
 ["dirs","[]struct","0+",{"fields":[
  ["path","string","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    35: """{"name":"DescribeLogDirsRequest","versions":"1-5","flexible":"2+","fields":[
 ["topics","[]struct","0+",{"nullable":"0+","fields":[
  ["topic","string","0+"],
  ["partitions","[]int32","0+"]]}]]}""",
    36: """{"name":"SaslAuthenticateRequest","versions":"0-2","flexible":"2+","fields":[
 ["authBytes","bytes","0+"]]}""",
    37: """{"name":"CreatePartitionsRequest","versions":"0-3","flexible":"2+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["count","int32","0+"],
  ["assignments","[]struct","0+",{"nullable":"0+","fields":[
   ["brokerIds","[]int32","0+"]]}]]}],
 ["timeoutMs","int32","0+"],
 ["validateOnly","bool","0+"]]}""",
    38: """{"name":"CreateDelegationTokenRequest","versions":"1-3","flexible":"2+","fields":[
 ["ownerPrincipalType","string","3+",{"nullable":"3+"}],
 ["ownerPrincipalName","string","3+",{"nullable":"3+"}],
 ["renewers","[]struct","0+",{"fields":[
  ["principalType","string","0+"],
  ["principalName","string","0+"]]}],
 ["maxLifetimeMs","int64","0+"]]}""",
    39: """{"name":"RenewDelegationTokenRequest","versions":"1-2","flexible":"2+","fields":[
 ["hmac","bytes","0+"],
 ["renewPeriodMs","int64","0+"]]}""",
    40: """{"name":"ExpireDelegationTokenRequest","versions":"1-2","flexible":"2+","fields":[
 ["hmac","bytes","0+"],
 ["expiryTimePeriodMs","int64","0+"]]}""",
    41: """{"name":"DescribeDelegationTokenRequest","versions":"1-3","flexible":"2+","fields":[
 ["owners","[]struct","0+",{"nullable":"0+","fields":[
  ["principalType","string","0+"],
  ["principalName","string","0+"]]}]]}""",
    42: """{"name":"DeleteGroupsRequest","versions":"0-2","flexible":"2+","fields":[
 ["groupsNames","[]string","0+"]]}""",
    43: """{"name":"ElectLeadersRequest","versions":"0-2","flexible":"2+","fields":[
 ["electionType","int8","1+"],
 ["topicPartitions","[]struct","0+",{"nullable":"0+","fields":[
  ["topic","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["timeoutMs","int32","0+",{"default":60000}]]}""",
    44: """{"name":"IncrementalAlterConfigsRequest","versions":"0-1","flexible":"1+","fields":[
 ["resources","[]struct","0+",{"fields":[
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["configs","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["configOperation","int8","0+"],
   ["value","string","0+",{"nullable":"0+"}]]}]]}],
 ["validateOnly","bool","0+"]]}""",
    45: """{"name":"AlterPartitionReassignmentsRequest","versions":"0-1","flexible":"0+","fields":[
 ["timeoutMs","int32","0+",{"default":60000}],
 ["allowReplicationFactorChange","bool","1+",{"default":true}],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["replicas","[]int32","0+",{"nullable":"0+","default":null}]]}]]}]]}""",
    46: """{"name":"ListPartitionReassignmentsRequest","versions":"0","flexible":"0+","fields":[
 ["timeoutMs","int32","0+",{"default":60000}],
 ["topics","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["name","string","0+"],
  ["partitionIndexes","[]int32","0+"]]}]]}""",
    47: """{"name":"OffsetDeleteRequest","versions":"0","flexible":"none","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"]]}]]}]]}""",
    48: """{"name":"DescribeClientQuotasRequest","versions":"0-1","flexible":"1+","fields":[
 ["components","[]struct","0+",{"fields":[
  ["entityType","string","0+"],
  ["matchType","int8","0+"],
  ["match","string","0+",{"nullable":"0+"}]]}],
 ["strict","bool","0+"]]}""",
    49: """{"name":"AlterClientQuotasRequest","versions":"0-1","flexible":"1+","fields":[
 ["entries","[]struct","0+",{"fields":[
  ["entity","[]struct","0+",{"fields":[
   ["entityType","string","0+"],
   ["entityName","string","0+",{"nullable":"0+"}]]}],
  ["ops","[]struct","0+",{"fields":[
   ["key","string","0+"],
   ["value","float64","0+"],
   ["remove","bool","0+"]]}]]}],
 ["validateOnly","bool","0+"]]}""",
    50: """{"name":"DescribeUserScramCredentialsRequest","versions":"0","flexible":"0+","fields":[
 ["users","[]struct","0+",{"nullable":"0+","fields":[
  ["name","string","0+"]]}]]}""",
    51: """{"name":"AlterUserScramCredentialsRequest","versions":"0","flexible":"0+","fields":[
 ["deletions","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["mechanism","int8","0+"]]}],
 ["upsertions","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["mechanism","int8","0+"],
  ["iterations","int32","0+"],
  ["salt","bytes","0+"],
  ["saltedPassword","bytes","0+"]]}]]}""",
    52: """{"name":"VoteRequest","versions":"0-2","flexible":"0+","fields":[
 ["clusterId","string","0+",{"nullable":"0+","default":null}],
 ["voterId","int32","1+",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["replicaEpoch","int32","0+"],
   ["replicaId","int32","0+"],
   ["replicaDirectoryId","uuid","1+"],
   ["voterDirectoryId","uuid","1+"],
   ["lastOffsetEpoch","int32","0+"],
   ["lastOffset","int64","0+"],
   ["preVote","bool","2+"]]}]]}]]}""",
    53: """{"name":"BeginQuorumEpochRequest","versions":"0-1","flexible":"1+","fields":[
 ["clusterId","string","0+",{"nullable":"0+","default":null}],
 ["voterId","int32","1+",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["voterDirectoryId","uuid","1+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"]]}]]}],
 ["leaderEndpoints","[]struct","1+",{"fields":[
  ["name","string","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    54: """{"name":"EndQuorumEpochRequest","versions":"0-1","flexible":"1+","fields":[
 ["clusterId","string","0+",{"nullable":"0+","default":null}],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["preferredSuccessors","[]int32","0"],
   ["preferredCandidates","[]struct","1+",{"fields":[
    ["candidateId","int32","1+"],
    ["candidateDirectoryId","uuid","1+"]]}]]}]]}],
 ["leaderEndpoints","[]struct","1+",{"fields":[
  ["name","string","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    55: """{"name":"DescribeQuorumRequest","versions":"0-2","flexible":"0+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"]]}]]}]]}""",
    56: """{"name":"AlterPartitionRequest","versions":"2-3","flexible":"0+","fields":[
 ["brokerId","int32","0+"],
 ["brokerEpoch","int64","0+",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","2+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["newIsr","[]int32","0-2"],
   ["newIsrWithEpochs","[]struct","3+",{"fields":[
    ["brokerId","int32","3+"],
    ["brokerEpoch","int64","3+",{"default":-1}]]}],
   ["leaderRecoveryState","int8","1+",{"default":0}],
   ["partitionEpoch","int32","0+"]]}]]}]]}""",
    57: """{"name":"UpdateFeaturesRequest","versions":"0-2","flexible":"0+","fields":[
 ["timeoutMs","int32","0+",{"default":60000}],
 ["featureUpdates","[]struct","0+",{"fields":[
  ["feature","string","0+"],
  ["maxVersionLevel","int16","0+"],
  ["allowDowngrade","bool","0"],
  ["upgradeType","int8","1+",{"default":1}]]}],
 ["validateOnly","bool","1+",{"default":false}]]}""",
    58: """{"name":"EnvelopeRequest","versions":"0","flexible":"0+","fields":[
 ["requestData","bytes","0+"],
 ["requestPrincipal","bytes","0+",{"nullable":"0+"}],
 ["clientHostAddress","bytes","0+"]]}""",
    59: """{"name":"FetchSnapshotRequest","versions":"0-1","flexible":"0+","fields":[
 ["clusterId","string","0+",{"nullable":"0+","tagged":"0+","tag":0,"default":null}],
 ["replicaId","int32","0+",{"default":-1}],
 ["maxBytes","int32","0+",{"default":2147483647}],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["currentLeaderEpoch","int32","0+"],
   ["snapshotId","struct","0+",{"fields":[
    ["endOffset","int64","0+"],
    ["epoch","int32","0+"]]}],
   ["position","int64","0+"],
   ["replicaDirectoryId","uuid","1+",{"tagged":"1+","tag":0}]]}]]}]]}""",
    60: """{"name":"DescribeClusterRequest","versions":"0-2","flexible":"0+","fields":[
 ["includeClusterAuthorizedOperations","bool","0+"],
 ["endpointType","int8","1+",{"default":1}],
 ["includeFencedBrokers","bool","2+"]]}""",
    61: """{"name":"DescribeProducersRequest","versions":"0","flexible":"0+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitionIndexes","[]int32","0+"]]}]]}""",
    62: """{"name":"BrokerRegistrationRequest","versions":"0-4","flexible":"0+","fields":[
 ["brokerId","int32","0+"],
 ["clusterId","string","0+"],
 ["incarnationId","uuid","0+"],
 ["listeners","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["host","string","0+"],
  ["port","uint16","0+"],
  ["securityProtocol","int16","0+"]]}],
 ["features","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["minSupportedVersion","int16","0+"],
  ["maxSupportedVersion","int16","0+"]]}],
 ["rack","string","0+",{"nullable":"0+"}],
 ["isMigratingZkBroker","bool","1+",{"default":false}],
 ["logDirs","[]uuid","2+"],
 ["previousBrokerEpoch","int64","3+",{"default":-1}]]}""",
    63: """{"name":"BrokerHeartbeatRequest","versions":"0-2","flexible":"0+","fields":[
 ["brokerId","int32","0+"],
 ["brokerEpoch","int64","0+",{"default":-1}],
 ["currentMetadataOffset","int64","0+"],
 ["wantFence","bool","0+"],
 ["wantShutDown","bool","0+"],
 ["offlineLogDirs","[]uuid","1+",{"tagged":"1+","tag":0}],
 ["cordonedLogDirs","[]uuid","2+",{"nullable":"2+","tagged":"2+","tag":1,"default":null}]]}""",
    64: """{"name":"UnregisterBrokerRequest","versions":"0","flexible":"0+","fields":[
 ["brokerId","int32","0+"]]}""",
    65: """{"name":"DescribeTransactionsRequest","versions":"0","flexible":"0+","fields":[
 ["transactionalIds","[]string","0+"]]}""",
    66: """{"name":"ListTransactionsRequest","versions":"0-2","flexible":"0+","fields":[
 ["stateFilters","[]string","0+"],
 ["producerIdFilters","[]int64","0+"],
 ["durationFilter","int64","1+",{"default":-1}],
 ["transactionalIdPattern","string","2+",{"nullable":"2+","default":null}]]}""",
    67: """{"name":"AllocateProducerIdsRequest","versions":"0","flexible":"0+","fields":[
 ["brokerId","int32","0+"],
 ["brokerEpoch","int64","0+",{"default":-1}]]}""",
    68: """{"name":"ConsumerGroupHeartbeatRequest","versions":"0-1","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["memberId","string","0+"],
 ["memberEpoch","int32","0+"],
 ["instanceId","string","0+",{"nullable":"0+","default":null}],
 ["rackId","string","0+",{"nullable":"0+","default":null}],
 ["rebalanceTimeoutMs","int32","0+",{"default":-1}],
 ["subscribedTopicNames","[]string","0+",{"nullable":"0+","default":null}],
 ["subscribedTopicRegex","string","1+",{"nullable":"1+","default":null}],
 ["serverAssignor","string","0+",{"nullable":"0+","default":null}],
 ["topicPartitions","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]int32","0+"]]}]]}""",
    69: """{"name":"ConsumerGroupDescribeRequest","versions":"0-1","flexible":"0+","fields":[
 ["groupIds","[]string","0+"],
 ["includeAuthorizedOperations","bool","0+"]]}""",
    70: """{"name":"ControllerRegistrationRequest","versions":"0","flexible":"0+","fields":[
 ["controllerId","int32","0+"],
 ["incarnationId","uuid","0+"],
 ["zkMigrationReady","bool","0+"],
 ["listeners","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["host","string","0+"],
  ["port","uint16","0+"],
  ["securityProtocol","int16","0+"]]}],
 ["features","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["minSupportedVersion","int16","0+"],
  ["maxSupportedVersion","int16","0+"]]}]]}""",
    71: """{"name":"GetTelemetrySubscriptionsRequest","versions":"0","flexible":"0+","fields":[
 ["clientInstanceId","uuid","0+"]]}""",
    72: """{"name":"PushTelemetryRequest","versions":"0","flexible":"0+","fields":[
 ["clientInstanceId","uuid","0+"],
 ["subscriptionId","int32","0+"],
 ["terminating","bool","0+"],
 ["compressionType","int8","0+"],
 ["metrics","bytes","0+"]]}""",
    73: """{"name":"AssignReplicasToDirsRequest","versions":"0","flexible":"0+","fields":[
 ["brokerId","int32","0+"],
 ["brokerEpoch","int64","0+",{"default":-1}],
 ["directories","[]struct","0+",{"fields":[
  ["id","uuid","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["topicId","uuid","0+"],
   ["partitions","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"]]}]]}]]}]]}""",
    74: """{"name":"ListConfigResourcesRequest","versions":"0-1","flexible":"0+","fields":[
 ["resourceTypes","[]int8","1+"]]}""",
    75: """{"name":"DescribeTopicPartitionsRequest","versions":"0","flexible":"0+","fields":[
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"]]}],
 ["responsePartitionLimit","int32","0+",{"default":2000}],
 ["cursor","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["topicName","string","0+"],
  ["partitionIndex","int32","0+"]]}]]}""",
    76: """{"name":"ShareGroupHeartbeatRequest","versions":"1","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["memberId","string","0+"],
 ["memberEpoch","int32","0+"],
 ["rackId","string","0+",{"nullable":"0+","default":null}],
 ["subscribedTopicNames","[]string","0+",{"nullable":"0+","default":null}]]}""",
    77: """{"name":"ShareGroupDescribeRequest","versions":"1","flexible":"0+","fields":[
 ["groupIds","[]string","0+"],
 ["includeAuthorizedOperations","bool","0+"]]}""",
    78: """{"name":"ShareFetchRequest","versions":"1-2","flexible":"0+","fields":[
 ["groupId","string","0+",{"nullable":"0+","default":null}],
 ["memberId","string","0+",{"nullable":"0+"}],
 ["shareSessionEpoch","int32","0+"],
 ["maxWaitMs","int32","0+"],
 ["minBytes","int32","0+"],
 ["maxBytes","int32","0+",{"default":2147483647}],
 ["maxRecords","int32","1+"],
 ["batchSize","int32","1+"],
 ["shareAcquireMode","int8","2+",{"default":0}],
 ["isRenewAck","bool","2+",{"default":false}],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["partitionMaxBytes","int32","0"],
   ["acknowledgementBatches","[]struct","0+",{"fields":[
    ["firstOffset","int64","0+"],
    ["lastOffset","int64","0+"],
    ["acknowledgeTypes","[]int8","0+"]]}]]}]]}],
 ["forgottenTopicsData","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]int32","0+"]]}]]}""",
    79: """{"name":"ShareAcknowledgeRequest","versions":"1-2","flexible":"0+","fields":[
 ["groupId","string","0+",{"nullable":"0+","default":null}],
 ["memberId","string","0+",{"nullable":"0+"}],
 ["shareSessionEpoch","int32","0+"],
 ["isRenewAck","bool","2+",{"default":false}],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["acknowledgementBatches","[]struct","0+",{"fields":[
    ["firstOffset","int64","0+"],
    ["lastOffset","int64","0+"],
    ["acknowledgeTypes","[]int8","0+"]]}]]}]]}]]}""",
    80: """{"name":"AddRaftVoterRequest","versions":"0-1","flexible":"0+","fields":[
 ["clusterId","string","0+",{"nullable":"0+"}],
 ["timeoutMs","int32","0+"],
 ["voterId","int32","0+"],
 ["voterDirectoryId","uuid","0+"],
 ["listeners","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["host","string","0+"],
  ["port","uint16","0+"]]}],
 ["ackWhenCommitted","bool","1+",{"default":true}]]}""",
    81: """{"name":"RemoveRaftVoterRequest","versions":"0","flexible":"0+","fields":[
 ["clusterId","string","0+",{"nullable":"0+"}],
 ["voterId","int32","0+"],
 ["voterDirectoryId","uuid","0+"]]}""",
    82: """{"name":"UpdateRaftVoterRequest","versions":"0","flexible":"0+","fields":[
 ["clusterId","string","0+",{"nullable":"0+"}],
 ["currentLeaderEpoch","int32","0+"],
 ["voterId","int32","0+"],
 ["voterDirectoryId","uuid","0+"],
 ["listeners","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["host","string","0+"],
  ["port","uint16","0+"]]}],
 ["kRaftVersionFeature","struct","0+",{"fields":[
  ["minSupportedVersion","int16","0+"],
  ["maxSupportedVersion","int16","0+"]]}]]}""",
    83: """{"name":"InitializeShareGroupStateRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["stateEpoch","int32","0+"],
   ["startOffset","int64","0+"]]}]]}]]}""",
    84: """{"name":"ReadShareGroupStateRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["leaderEpoch","int32","0+"]]}]]}]]}""",
    85: """{"name":"WriteShareGroupStateRequest","versions":"0-1","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["stateEpoch","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["startOffset","int64","0+"],
   ["deliveryCompleteCount","int32","1+",{"default":-1}],
   ["stateBatches","[]struct","0+",{"fields":[
    ["firstOffset","int64","0+"],
    ["lastOffset","int64","0+"],
    ["deliveryState","int8","0+"],
    ["deliveryCount","int16","0+"]]}]]}]]}]]}""",
    86: """{"name":"DeleteShareGroupStateRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"]]}]]}]]}""",
    87: """{"name":"ReadShareGroupStateSummaryRequest","versions":"0-1","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["leaderEpoch","int32","0+"]]}]]}]]}""",
    88: """{"name":"StreamsGroupHeartbeatRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["memberId","string","0+"],
 ["memberEpoch","int32","0+"],
 ["endpointInformationEpoch","int32","0+"],
 ["instanceId","string","0+",{"nullable":"0+","default":null}],
 ["rackId","string","0+",{"nullable":"0+","default":null}],
 ["rebalanceTimeoutMs","int32","0+",{"default":-1}],
 ["topology","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["epoch","int32","0+"],
  ["subtopologies","[]struct","0+",{"fields":[
   ["subtopologyId","string","0+"],
   ["sourceTopics","[]string","0+"],
   ["sourceTopicRegex","[]string","0+"],
   ["stateChangelogTopics","[]struct","0+",{"fields":[
    ["name","string","0+"],
    ["partitions","int32","0+"],
    ["replicationFactor","int16","0+"],
    ["topicConfigs","[]struct","0+",{"fields":[
     ["key","string","0+"],
     ["value","string","0+"]]}]]}],
   ["repartitionSinkTopics","[]string","0+"],
   ["repartitionSourceTopics","[]struct","0+",{"fields":[
    ["name","string","0+"],
    ["partitions","int32","0+"],
    ["replicationFactor","int16","0+"],
    ["topicConfigs","[]struct","0+",{"fields":[
     ["key","string","0+"],
     ["value","string","0+"]]}]]}],
   ["copartitionGroups","[]struct","0+",{"fields":[
    ["sourceTopics","[]int16","0+"],
    ["sourceTopicRegex","[]int16","0+"],
    ["repartitionSourceTopics","[]int16","0+"]]}]]}]]}],
 ["activeTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["standbyTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["warmupTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["processId","string","0+",{"nullable":"0+","default":null}],
 ["userEndpoint","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["host","string","0+"],
  ["port","uint16","0+"]]}],
 ["clientTags","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["key","string","0+"],
  ["value","string","0+"]]}],
 ["taskOffsets","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partition","int32","0+"],
  ["offset","int64","0+"]]}],
 ["taskEndOffsets","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partition","int32","0+"],
  ["offset","int64","0+"]]}],
 ["shutdownApplication","bool","0+",{"default":false}]]}""",
    89: """{"name":"StreamsGroupDescribeRequest","versions":"0","flexible":"0+","fields":[
 ["groupIds","[]string","0+"],
 ["includeAuthorizedOperations","bool","0+"]]}""",
    90: """{"name":"DescribeShareGroupOffsetsRequest","versions":"0-1","flexible":"0+","fields":[
 ["groups","[]struct","0+",{"fields":[
  ["groupId","string","0+"],
  ["topics","[]struct","0+",{"nullable":"0+","fields":[
   ["topicName","string","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    91: """{"name":"AlterShareGroupOffsetsRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["startOffset","int64","0+"]]}]]}]]}""",
    92: """{"name":"DeleteShareGroupOffsetsRequest","versions":"0","flexible":"0+","fields":[
 ["groupId","string","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"]]}]]}""",
}

RESPONSES: Final[dict[int, str]] = {
    0: """{"name":"ProduceResponse","versions":"3-13","flexible":"9+","fields":[
 ["responses","[]struct","0+",{"fields":[
  ["name","string","0-12"],
  ["topicId","uuid","13+"],
  ["partitionResponses","[]struct","0+",{"fields":[
   ["index","int32","0+"],
   ["errorCode","int16","0+"],
   ["baseOffset","int64","0+"],
   ["logAppendTimeMs","int64","2+",{"default":-1}],
   ["logStartOffset","int64","5+",{"default":-1}],
   ["recordErrors","[]struct","8+",{"fields":[
    ["batchIndex","int32","8+"],
    ["batchIndexErrorMessage","string","8+",{"nullable":"8+","default":null}]]}],
   ["errorMessage","string","8+",{"nullable":"8+","default":null}],
   ["currentLeader","struct","10+",{"tagged":"10+","tag":0,"fields":[
    ["leaderId","int32","10+",{"default":-1}],
    ["leaderEpoch","int32","10+",{"default":-1}]]}]]}]]}],
 ["throttleTimeMs","int32","1+",{"default":0}],
 ["nodeEndpoints","[]struct","10+",{"tagged":"10+","tag":0,"fields":[
  ["nodeId","int32","10+"],
  ["host","string","10+"],
  ["port","int32","10+"],
  ["rack","string","10+",{"nullable":"10+","default":null}]]}]]}""",
    1: """{"name":"FetchResponse","versions":"4-18","flexible":"12+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","7+"],
 ["sessionId","int32","7+",{"default":0}],
 ["responses","[]struct","0+",{"fields":[
  ["topic","string","0-12"],
  ["topicId","uuid","13+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["highWatermark","int64","0+"],
   ["lastStableOffset","int64","4+",{"default":-1}],
   ["logStartOffset","int64","5+",{"default":-1}],
   ["divergingEpoch","struct","12+",{"tagged":"12+","tag":0,"fields":[
    ["epoch","int32","12+",{"default":-1}],
    ["endOffset","int64","12+",{"default":-1}]]}],
   ["currentLeader","struct","12+",{"tagged":"12+","tag":1,"fields":[
    ["leaderId","int32","12+",{"default":-1}],
    ["leaderEpoch","int32","12+",{"default":-1}]]}],
   ["snapshotId","struct","12+",{"tagged":"12+","tag":2,"fields":[
    ["endOffset","int64","0+",{"default":-1}],
    ["epoch","int32","0+",{"default":-1}]]}],
   ["abortedTransactions","[]struct","4+",{"nullable":"4+","fields":[
    ["producerId","int64","4+"],
    ["firstOffset","int64","4+"]]}],
   ["preferredReadReplica","int32","11+",{"default":-1}],
   ["records","records","0+",{"nullable":"0+"}]]}]]}],
 ["nodeEndpoints","[]struct","16+",{"tagged":"16+","tag":0,"fields":[
  ["nodeId","int32","16+"],
  ["host","string","16+"],
  ["port","int32","16+"],
  ["rack","string","16+",{"nullable":"16+","default":null}]]}]]}""",
    2: """{"name":"ListOffsetsResponse","versions":"1-11","flexible":"6+","fields":[
 ["throttleTimeMs","int32","2+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["timestamp","int64","1+",{"default":-1}],
   ["offset","int64","1+",{"default":-1}],
   ["leaderEpoch","int32","4+",{"default":-1}]]}]]}]]}""",
    3: """{"name":"MetadataResponse","versions":"0-13","flexible":"9+","fields":[
 ["throttleTimeMs","int32","3+"],
 ["brokers","[]struct","0+",{"fields":[
  ["nodeId","int32","0+"],
  ["host","string","0+"],
  ["port","int32","0+"],
  ["rack","string","1+",{"nullable":"1+","default":null}]]}],
 ["clusterId","string","2+",{"nullable":"2+","default":null}],
 ["controllerId","int32","1+",{"default":-1}],
 ["topics","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["name","string","0+",{"nullable":"12+"}],
  ["topicId","uuid","10+"],
  ["isInternal","bool","1+",{"default":false}],
  ["partitions","[]struct","0+",{"fields":[
   ["errorCode","int16","0+"],
   ["partitionIndex","int32","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","7+",{"default":-1}],
   ["replicaNodes","[]int32","0+"],
   ["isrNodes","[]int32","0+"],
   ["offlineReplicas","[]int32","5+"]]}],
  ["topicAuthorizedOperations","int32","8+",{"default":-2147483648}]]}],
 ["clusterAuthorizedOperations","int32","8-10",{"default":-2147483648}],
 ["errorCode","int16","13+"]]}""",
    8: """{"name":"OffsetCommitResponse","versions":"2-10","flexible":"8+","fields":[
 ["throttleTimeMs","int32","3+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0-9"],
  ["topicId","uuid","10+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"]]}]]}]]}""",
    9: """{"name":"OffsetFetchResponse","versions":"1-10","flexible":"6+","fields":[
 ["throttleTimeMs","int32","3+"],
 ["topics","[]struct","0-7",{"fields":[
  ["name","string","0-7"],
  ["partitions","[]struct","0-7",{"fields":[
   ["partitionIndex","int32","0-7"],
   ["committedOffset","int64","0-7"],
   ["committedLeaderEpoch","int32","5-7",{"default":-1}],
   ["metadata","string","0-7",{"nullable":"0-7"}],
   ["errorCode","int16","0-7"]]}]]}],
 ["errorCode","int16","2-7",{"default":0}],
 ["groups","[]struct","8+",{"fields":[
  ["groupId","string","8+"],
  ["topics","[]struct","8+",{"fields":[
   ["name","string","8-9"],
   ["topicId","uuid","10+"],
   ["partitions","[]struct","8+",{"fields":[
    ["partitionIndex","int32","8+"],
    ["committedOffset","int64","8+"],
    ["committedLeaderEpoch","int32","8+",{"default":-1}],
    ["metadata","string","8+",{"nullable":"8+"}],
    ["errorCode","int16","8+"]]}]]}],
  ["errorCode","int16","8+",{"default":0}]]}]]}""",
    10: """{"name":"FindCoordinatorResponse","versions":"0-6","flexible":"3+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","0-3"],
 ["errorMessage","string","1-3",{"nullable":"1-3"}],
 ["nodeId","int32","0-3"],
 ["host","string","0-3"],
 ["port","int32","0-3"],
 ["coordinators","[]struct","4+",{"fields":[
  ["key","string","4+"],
  ["nodeId","int32","4+"],
  ["host","string","4+"],
  ["port","int32","4+"],
  ["errorCode","int16","4+"],
  ["errorMessage","string","4+",{"nullable":"4+"}]]}]]}""",
    11: """{"name":"JoinGroupResponse","versions":"0-9","flexible":"6+","fields":[
 ["throttleTimeMs","int32","2+"],
 ["errorCode","int16","0+"],
 ["generationId","int32","0+",{"default":-1}],
 ["protocolType","string","7+",{"nullable":"7+","default":null}],
 ["protocolName","string","0+",{"nullable":"7+"}],
 ["leader","string","0+"],
 ["skipAssignment","bool","9+",{"default":false}],
 ["memberId","string","0+"],
 ["members","[]struct","0+",{"fields":[
  ["memberId","string","0+"],
  ["groupInstanceId","string","5+",{"nullable":"5+","default":null}],
  ["metadata","bytes","0+"]]}]]}""",
    12: """{"name":"HeartbeatResponse","versions":"0-4","flexible":"4+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","0+"]]}""",
    13: """{"name":"LeaveGroupResponse","versions":"0-5","flexible":"4+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","0+"],
 ["members","[]struct","3+",{"fields":[
  ["memberId","string","3+"],
  ["groupInstanceId","string","3+",{"nullable":"3+"}],
  ["errorCode","int16","3+"]]}]]}""",
    14: """{"name":"SyncGroupResponse","versions":"0-5","flexible":"4+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","0+"],
 ["protocolType","string","5+",{"nullable":"5+","default":null}],
 ["protocolName","string","5+",{"nullable":"5+","default":null}],
 ["assignment","bytes","0+"]]}""",
    15: """{"name":"DescribeGroupsResponse","versions":"0-6","flexible":"5+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["groups","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","6+",{"nullable":"6+","default":null}],
  ["groupId","string","0+"],
  ["groupState","string","0+"],
  ["protocolType","string","0+"],
  ["protocolData","string","0+"],
  ["members","[]struct","0+",{"fields":[
   ["memberId","string","0+"],
   ["groupInstanceId","string","4+",{"nullable":"4+","default":null}],
   ["clientId","string","0+"],
   ["clientHost","string","0+"],
   ["memberMetadata","bytes","0+"],
   ["memberAssignment","bytes","0+"]]}],
  ["authorizedOperations","int32","3+",{"default":-2147483648}]]}]]}""",
    16: """{"name":"ListGroupsResponse","versions":"0-5","flexible":"3+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["errorCode","int16","0+"],
 ["groups","[]struct","0+",{"fields":[
  ["groupId","string","0+"],
  ["protocolType","string","0+"],
  ["groupState","string","4+"],
  ["groupType","string","5+"]]}]]}""",
    17: """{"name":"SaslHandshakeResponse","versions":"0-1","flexible":"none","fields":[
 ["errorCode","int16","0+"],
 ["mechanisms","[]string","0+"]]}""",
    18: """{"name":"ApiVersionsResponse","versions":"0-4","flexible":"3+","fields":[
 ["errorCode","int16","0+"],
 ["apiKeys","[]struct","0+",{"fields":[
  ["apiKey","int16","0+"],
  ["minVersion","int16","0+"],
  ["maxVersion","int16","0+"]]}],
 ["throttleTimeMs","int32","1+"],
 ["supportedFeatures","[]struct","3+",{"tagged":"3+","tag":0,"fields":[
  ["name","string","3+"],
  ["minVersion","int16","3+"],
  ["maxVersion","int16","3+"]]}],
 ["finalizedFeaturesEpoch","int64","3+",{"tagged":"3+","tag":1,"default":-1}],
 ["finalizedFeatures","[]struct","3+",{"tagged":"3+","tag":2,"fields":[
  ["name","string","3+"],
  ["maxVersionLevel","int16","3+"],
  ["minVersionLevel","int16","3+"]]}],
 ["zkMigrationReady","bool","3+",{"tagged":"3+","tag":3,"default":false}]]}""",
    19: """{"name":"CreateTopicsResponse","versions":"2-7","flexible":"5+","fields":[
 ["throttleTimeMs","int32","2+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["topicId","uuid","7+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","1+",{"nullable":"0+"}],
  ["topicConfigErrorCode","int16","5+",{"tagged":"5+","tag":0}],
  ["numPartitions","int32","5+",{"default":-1}],
  ["replicationFactor","int16","5+",{"default":-1}],
  ["configs","[]struct","5+",{"nullable":"5+","fields":[
   ["name","string","5+"],
   ["value","string","5+",{"nullable":"5+"}],
   ["readOnly","bool","5+"],
   ["configSource","int8","5+",{"default":-1}],
   ["isSensitive","bool","5+"]]}]]}]]}""",
    20: """{"name":"DeleteTopicsResponse","versions":"1-6","flexible":"4+","fields":[
 ["throttleTimeMs","int32","1+"],
 ["responses","[]struct","0+",{"fields":[
  ["name","string","0+",{"nullable":"6+"}],
  ["topicId","uuid","6+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","5+",{"nullable":"5+","default":null}]]}]]}""",
    21: """{"name":"DeleteRecordsResponse","versions":"0-2","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["lowWatermark","int64","0+"],
   ["errorCode","int16","0+"]]}]]}]]}""",
    22: """{"name":"InitProducerIdResponse","versions":"0-6","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["producerId","int64","0+",{"default":-1}],
 ["producerEpoch","int16","0+"],
 ["ongoingTxnProducerId","int64","6+",{"default":-1}],
 ["ongoingTxnProducerEpoch","int16","6+",{"default":-1}]]}""",
    23: """{"name":"OffsetForLeaderEpochResponse","versions":"2-4","flexible":"4+","fields":[
 ["throttleTimeMs","int32","2+"],
 ["topics","[]struct","0+",{"fields":[
  ["topic","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["errorCode","int16","0+"],
   ["partition","int32","0+"],
   ["leaderEpoch","int32","1+",{"default":-1}],
   ["endOffset","int64","0+",{"default":-1}]]}]]}]]}""",
    24: """{"name":"AddPartitionsToTxnResponse","versions":"0-5","flexible":"3+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","4+"],
 ["resultsByTransaction","[]struct","4+",{"fields":[
  ["transactionalId","string","4+"],
  ["topicResults","[]struct","4+",{"fields":[
   ["name","string","0+"],
   ["resultsByPartition","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"],
    ["partitionErrorCode","int16","0+"]]}]]}]]}],
 ["resultsByTopicV3AndBelow","[]struct","0-3",{"fields":[
  ["name","string","0+"],
  ["resultsByPartition","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["partitionErrorCode","int16","0+"]]}]]}]]}""",
    25: """{"name":"AddOffsetsToTxnResponse","versions":"0-4","flexible":"3+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"]]}""",
    26: """{"name":"EndTxnResponse","versions":"0-5","flexible":"3+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["producerId","int64","5+",{"default":-1}],
 ["producerEpoch","int16","5+",{"default":-1}]]}""",
    27: """{"name":"WriteTxnMarkersResponse","versions":"1-2","flexible":"1+","fields":[
 ["markers","[]struct","0+",{"fields":[
  ["producerId","int64","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["partitions","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"],
    ["errorCode","int16","0+"]]}]]}]]}]]}""",
    28: """{"name":"TxnOffsetCommitResponse","versions":"0-5","flexible":"3+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"]]}]]}]]}""",
    29: """{"name":"DescribeAclsResponse","versions":"1-3","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["resources","[]struct","0+",{"fields":[
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["patternType","int8","1+",{"default":3}],
  ["acls","[]struct","0+",{"fields":[
   ["principal","string","0+"],
   ["host","string","0+"],
   ["operation","int8","0+"],
   ["permissionType","int8","0+"]]}]]}]]}""",
    30: """{"name":"CreateAclsResponse","versions":"1-3","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}]]}]]}""",
    31: """{"name":"DeleteAclsResponse","versions":"1-3","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["filterResults","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["matchingAcls","[]struct","0+",{"fields":[
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+"}],
   ["resourceType","int8","0+"],
   ["resourceName","string","0+"],
   ["patternType","int8","1+",{"default":3}],
   ["principal","string","0+"],
   ["host","string","0+"],
   ["operation","int8","0+"],
   ["permissionType","int8","0+"]]}]]}]]}""",
    32: """{"name":"DescribeConfigsResponse","versions":"1-4","flexible":"4+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"],
  ["configs","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["value","string","0+",{"nullable":"0+"}],
   ["readOnly","bool","0+"],
   ["configSource","int8","1+",{"default":-1}],
   ["isSensitive","bool","0+"],
   ["synonyms","[]struct","1+",{"fields":[
    ["name","string","1+"],
    ["value","string","1+",{"nullable":"0+"}],
    ["source","int8","1+"]]}],
   ["configType","int8","3+",{"default":0}],
   ["documentation","string","3+",{"nullable":"0+"}]]}]]}]]}""",
    33: """{"name":"AlterConfigsResponse","versions":"0-2","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["responses","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"]]}]]}""",
    34: """{"name":"AlterReplicaLogDirsResponse","versions":"1-2","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"]]}]]}]]}""",
    35: """{"name":"DescribeLogDirsResponse","versions":"1-5","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","3+"],
 ["results","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["logDir","string","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["name","string","0+"],
   ["partitions","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"],
    ["partitionSize","int64","0+"],
    ["offsetLag","int64","0+"],
    ["isFutureKey","bool","0+"]]}]]}],
  ["totalBytes","int64","4+",{"default":-1}],
  ["usableBytes","int64","4+",{"default":-1}],
  ["isCordoned","bool","5+",{"default":false}]]}]]}""",
    36: """{"name":"SaslAuthenticateResponse","versions":"0-2","flexible":"2+","fields":[
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["authBytes","bytes","0+"],
 ["sessionLifetimeMs","int64","1+",{"default":0}]]}""",
    37: """{"name":"CreatePartitionsResponse","versions":"0-3","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}""",
    38: """{"name":"CreateDelegationTokenResponse","versions":"1-3","flexible":"2+","fields":[
 ["errorCode","int16","0+"],
 ["principalType","string","0+"],
 ["principalName","string","0+"],
 ["tokenRequesterPrincipalType","string","3+"],
 ["tokenRequesterPrincipalName","string","3+"],
 ["issueTimestampMs","int64","0+"],
 ["expiryTimestampMs","int64","0+"],
 ["maxTimestampMs","int64","0+"],
 ["tokenId","string","0+"],
 ["hmac","bytes","0+"],
 ["throttleTimeMs","int32","0+"]]}""",
    39: """{"name":"RenewDelegationTokenResponse","versions":"1-2","flexible":"2+","fields":[
 ["errorCode","int16","0+"],
 ["expiryTimestampMs","int64","0+"],
 ["throttleTimeMs","int32","0+"]]}""",
    40: """{"name":"ExpireDelegationTokenResponse","versions":"1-2","flexible":"2+","fields":[
 ["errorCode","int16","0+"],
 ["expiryTimestampMs","int64","0+"],
 ["throttleTimeMs","int32","0+"]]}""",
    41: """{"name":"DescribeDelegationTokenResponse","versions":"1-3","flexible":"2+","fields":[
 ["errorCode","int16","0+"],
 ["tokens","[]struct","0+",{"fields":[
  ["principalType","string","0+"],
  ["principalName","string","0+"],
  ["tokenRequesterPrincipalType","string","3+"],
  ["tokenRequesterPrincipalName","string","3+"],
  ["issueTimestamp","int64","0+"],
  ["expiryTimestamp","int64","0+"],
  ["maxTimestamp","int64","0+"],
  ["tokenId","string","0+"],
  ["hmac","bytes","0+"],
  ["renewers","[]struct","0+",{"fields":[
   ["principalType","string","0+"],
   ["principalName","string","0+"]]}]]}],
 ["throttleTimeMs","int32","0+"]]}""",
    42: """{"name":"DeleteGroupsResponse","versions":"0-2","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["groupId","string","0+"],
  ["errorCode","int16","0+"]]}]]}""",
    43: """{"name":"ElectLeadersResponse","versions":"0-2","flexible":"2+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","1+"],
 ["replicaElectionResults","[]struct","0+",{"fields":[
  ["topic","string","0+"],
  ["partitionResult","[]struct","0+",{"fields":[
   ["partitionId","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+"}]]}]]}]]}""",
    44: """{"name":"IncrementalAlterConfigsResponse","versions":"0-1","flexible":"1+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["responses","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["resourceType","int8","0+"],
  ["resourceName","string","0+"]]}]]}""",
    45: """{"name":"AlterPartitionReassignmentsResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["allowReplicationFactorChange","bool","1+",{"default":true}],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["responses","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+"}]]}]]}]]}""",
    46: """{"name":"ListPartitionReassignmentsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["replicas","[]int32","0+"],
   ["addingReplicas","[]int32","0+"],
   ["removingReplicas","[]int32","0+"]]}]]}]]}""",
    47: """{"name":"OffsetDeleteResponse","versions":"0","flexible":"none","fields":[
 ["errorCode","int16","0+"],
 ["throttleTimeMs","int32","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"]]}]]}]]}""",
    48: """{"name":"DescribeClientQuotasResponse","versions":"0-1","flexible":"1+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["entries","[]struct","0+",{"nullable":"0+","fields":[
  ["entity","[]struct","0+",{"fields":[
   ["entityType","string","0+"],
   ["entityName","string","0+",{"nullable":"0+"}]]}],
  ["values","[]struct","0+",{"fields":[
   ["key","string","0+"],
   ["value","float64","0+"]]}]]}]]}""",
    49: """{"name":"AlterClientQuotasResponse","versions":"0-1","flexible":"1+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["entries","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["entity","[]struct","0+",{"fields":[
   ["entityType","string","0+"],
   ["entityName","string","0+",{"nullable":"0+"}]]}]]}]]}""",
    50: """{"name":"DescribeUserScramCredentialsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["results","[]struct","0+",{"fields":[
  ["user","string","0+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}],
  ["credentialInfos","[]struct","0+",{"fields":[
   ["mechanism","int8","0+"],
   ["iterations","int32","0+"]]}]]}]]}""",
    51: """{"name":"AlterUserScramCredentialsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["results","[]struct","0+",{"fields":[
  ["user","string","0+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}]]}]]}""",
    52: """{"name":"VoteResponse","versions":"0-2","flexible":"0+","fields":[
 ["errorCode","int16","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["voteGranted","bool","0+"]]}]]}],
 ["nodeEndpoints","[]struct","1+",{"tagged":"1+","tag":0,"fields":[
  ["nodeId","int32","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    53: """{"name":"BeginQuorumEpochResponse","versions":"0-1","flexible":"1+","fields":[
 ["errorCode","int16","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"]]}]]}],
 ["nodeEndpoints","[]struct","1+",{"tagged":"1+","tag":0,"fields":[
  ["nodeId","int32","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    54: """{"name":"EndQuorumEpochResponse","versions":"0-1","flexible":"1+","fields":[
 ["errorCode","int16","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"]]}]]}],
 ["nodeEndpoints","[]struct","1+",{"tagged":"1+","tag":0,"fields":[
  ["nodeId","int32","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    55: """{"name":"DescribeQuorumResponse","versions":"0-2","flexible":"0+","fields":[
 ["errorCode","int16","0+"],
 ["errorMessage","string","2+",{"nullable":"2+"}],
 ["topics","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","2+",{"nullable":"2+"}],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["highWatermark","int64","0+"],
   ["currentVoters","[]struct","0+",{"fields":[
    ["replicaId","int32","0+"],
    ["replicaDirectoryId","uuid","2+"],
    ["logEndOffset","int64","0+"],
    ["lastFetchTimestamp","int64","1+",{"default":-1}],
    ["lastCaughtUpTimestamp","int64","1+",{"default":-1}]]}],
   ["observers","[]struct","0+",{"fields":[
    ["replicaId","int32","0+"],
    ["replicaDirectoryId","uuid","2+"],
    ["logEndOffset","int64","0+"],
    ["lastFetchTimestamp","int64","1+",{"default":-1}],
    ["lastCaughtUpTimestamp","int64","1+",{"default":-1}]]}]]}]]}],
 ["nodes","[]struct","2+",{"fields":[
  ["nodeId","int32","2+"],
  ["listeners","[]struct","2+",{"fields":[
   ["name","string","2+"],
   ["host","string","2+"],
   ["port","uint16","2+"]]}]]}]]}""",
    56: """{"name":"AlterPartitionResponse","versions":"2-3","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["topicId","uuid","2+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["isr","[]int32","0+"],
   ["leaderRecoveryState","int8","1+",{"default":0}],
   ["partitionEpoch","int32","0+"]]}]]}]]}""",
    57: """{"name":"UpdateFeaturesResponse","versions":"0-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}],
 ["results","[]struct","0-1",{"fields":[
  ["feature","string","0+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+"}]]}]]}""",
    58: """{"name":"EnvelopeResponse","versions":"0","flexible":"0+","fields":[
 ["responseData","bytes","0+",{"nullable":"0+","default":null}],
 ["errorCode","int16","0+"]]}""",
    59: """{"name":"FetchSnapshotResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["index","int32","0+"],
   ["errorCode","int16","0+"],
   ["snapshotId","struct","0+",{"fields":[
    ["endOffset","int64","0+"],
    ["epoch","int32","0+"]]}],
   ["currentLeader","struct","0+",{"tagged":"0+","tag":0,"fields":[
    ["leaderId","int32","0+"],
    ["leaderEpoch","int32","0+"]]}],
   ["size","int64","0+"],
   ["position","int64","0+"],
   ["unalignedRecords","records","0+"]]}]]}],
 ["nodeEndpoints","[]struct","1+",{"tagged":"1+","tag":0,"fields":[
  ["nodeId","int32","1+"],
  ["host","string","1+"],
  ["port","uint16","1+"]]}]]}""",
    60: """{"name":"DescribeClusterResponse","versions":"0-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["endpointType","int8","1+",{"default":1}],
 ["clusterId","string","0+"],
 ["controllerId","int32","0+",{"default":-1}],
 ["brokers","[]struct","0+",{"fields":[
  ["brokerId","int32","0+"],
  ["host","string","0+"],
  ["port","int32","0+"],
  ["rack","string","0+",{"nullable":"0+","default":null}],
  ["isFenced","bool","2+"]]}],
 ["clusterAuthorizedOperations","int32","0+",{"default":-2147483648}]]}""",
    61: """{"name":"DescribeProducersResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["name","string","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}],
   ["activeProducers","[]struct","0+",{"fields":[
    ["producerId","int64","0+"],
    ["producerEpoch","int32","0+"],
    ["lastSequence","int32","0+",{"default":-1}],
    ["lastTimestamp","int64","0+",{"default":-1}],
    ["coordinatorEpoch","int32","0+"],
    ["currentTxnStartOffset","int64","0+",{"default":-1}]]}]]}]]}]]}""",
    62: """{"name":"BrokerRegistrationResponse","versions":"0-4","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["brokerEpoch","int64","0+",{"default":-1}]]}""",
    63: """{"name":"BrokerHeartbeatResponse","versions":"0-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["isCaughtUp","bool","0+",{"default":false}],
 ["isFenced","bool","0+",{"default":true}],
 ["shouldShutDown","bool","0+"]]}""",
    64: """{"name":"UnregisterBrokerResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}]]}""",
    65: """{"name":"DescribeTransactionsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["transactionStates","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["transactionalId","string","0+"],
  ["transactionState","string","0+"],
  ["transactionTimeoutMs","int32","0+"],
  ["transactionStartTimeMs","int64","0+"],
  ["producerId","int64","0+"],
  ["producerEpoch","int16","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["topic","string","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    66: """{"name":"ListTransactionsResponse","versions":"0-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["unknownStateFilters","[]string","0+"],
 ["transactionStates","[]struct","0+",{"fields":[
  ["transactionalId","string","0+"],
  ["producerId","int64","0+"],
  ["transactionState","string","0+"]]}]]}""",
    67: """{"name":"AllocateProducerIdsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["producerIdStart","int64","0+"],
 ["producerIdLen","int32","0+"]]}""",
    68: """{"name":"ConsumerGroupHeartbeatResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["memberId","string","0+",{"nullable":"0+","default":null}],
 ["memberEpoch","int32","0+"],
 ["heartbeatIntervalMs","int32","0+"],
 ["assignment","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["topicPartitions","[]struct","0+",{"fields":[
   ["topicId","uuid","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    69: """{"name":"ConsumerGroupDescribeResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["groups","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}],
  ["groupId","string","0+"],
  ["groupState","string","0+"],
  ["groupEpoch","int32","0+"],
  ["assignmentEpoch","int32","0+"],
  ["assignorName","string","0+"],
  ["members","[]struct","0+",{"fields":[
   ["memberId","string","0+"],
   ["instanceId","string","0+",{"nullable":"0+","default":null}],
   ["rackId","string","0+",{"nullable":"0+","default":null}],
   ["memberEpoch","int32","0+"],
   ["clientId","string","0+"],
   ["clientHost","string","0+"],
   ["subscribedTopicNames","[]string","0+"],
   ["subscribedTopicRegex","string","0+",{"nullable":"0+","default":null}],
   ["assignment","struct","0+",{"fields":[
    ["topicPartitions","[]struct","0+",{"fields":[
     ["topicId","uuid","0+"],
     ["topicName","string","0+"],
     ["partitions","[]int32","0+"]]}]]}],
   ["targetAssignment","struct","0+",{"fields":[
    ["topicPartitions","[]struct","0+",{"fields":[
     ["topicId","uuid","0+"],
     ["topicName","string","0+"],
     ["partitions","[]int32","0+"]]}]]}],
   ["memberType","int8","1+",{"default":-1}]]}],
  ["authorizedOperations","int32","0+",{"default":-2147483648}]]}]]}""",
    70: """{"name":"ControllerRegistrationResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}]]}""",
    71: """{"name":"GetTelemetrySubscriptionsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["clientInstanceId","uuid","0+"],
 ["subscriptionId","int32","0+"],
 ["acceptedCompressionTypes","[]int8","0+"],
 ["pushIntervalMs","int32","0+"],
 ["telemetryMaxBytes","int32","0+"],
 ["deltaTemporality","bool","0+"],
 ["requestedMetrics","[]string","0+"]]}""",
    72: """{"name":"PushTelemetryResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"]]}""",
    73: """{"name":"AssignReplicasToDirsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["directories","[]struct","0+",{"fields":[
  ["id","uuid","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["topicId","uuid","0+"],
   ["partitions","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"],
    ["errorCode","int16","0+"]]}]]}]]}]]}""",
    74: """{"name":"ListConfigResourcesResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["configResources","[]struct","0+",{"fields":[
  ["resourceName","string","0+"],
  ["resourceType","int8","1+",{"default":16}]]}]]}""",
    75: """{"name":"DescribeTopicPartitionsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["topics","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["name","string","0+",{"nullable":"0+"}],
  ["topicId","uuid","0+"],
  ["isInternal","bool","0+",{"default":false}],
  ["partitions","[]struct","0+",{"fields":[
   ["errorCode","int16","0+"],
   ["partitionIndex","int32","0+"],
   ["leaderId","int32","0+"],
   ["leaderEpoch","int32","0+",{"default":-1}],
   ["replicaNodes","[]int32","0+"],
   ["isrNodes","[]int32","0+"],
   ["eligibleLeaderReplicas","[]int32","0+",{"nullable":"0+","default":null}],
   ["lastKnownElr","[]int32","0+",{"nullable":"0+","default":null}],
   ["offlineReplicas","[]int32","0+"]]}],
  ["topicAuthorizedOperations","int32","0+",{"default":-2147483648}]]}],
 ["nextCursor","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["topicName","string","0+"],
  ["partitionIndex","int32","0+"]]}]]}""",
    76: """{"name":"ShareGroupHeartbeatResponse","versions":"1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["memberId","string","0+",{"nullable":"0+","default":null}],
 ["memberEpoch","int32","0+"],
 ["heartbeatIntervalMs","int32","0+"],
 ["assignment","struct","0+",{"nullable":"0+","default":null,"fields":[
  ["topicPartitions","[]struct","0+",{"fields":[
   ["topicId","uuid","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    77: """{"name":"ShareGroupDescribeResponse","versions":"1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["groups","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}],
  ["groupId","string","0+"],
  ["groupState","string","0+"],
  ["groupEpoch","int32","0+"],
  ["assignmentEpoch","int32","0+"],
  ["assignorName","string","0+"],
  ["members","[]struct","0+",{"fields":[
   ["memberId","string","0+"],
   ["rackId","string","0+",{"nullable":"0+","default":null}],
   ["memberEpoch","int32","0+"],
   ["clientId","string","0+"],
   ["clientHost","string","0+"],
   ["subscribedTopicNames","[]string","0+"],
   ["assignment","struct","0+",{"fields":[
    ["topicPartitions","[]struct","0+",{"fields":[
     ["topicId","uuid","0+"],
     ["topicName","string","0+"],
     ["partitions","[]int32","0+"]]}]]}]]}],
  ["authorizedOperations","int32","0+",{"default":-2147483648}]]}]]}""",
    78: """{"name":"ShareFetchResponse","versions":"1-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["acquisitionLockTimeoutMs","int32","1+"],
 ["responses","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}],
   ["acknowledgeErrorCode","int16","0+"],
   ["acknowledgeErrorMessage","string","0+",{"nullable":"0+","default":null}],
   ["currentLeader","struct","0+",{"fields":[
    ["leaderId","int32","0+"],
    ["leaderEpoch","int32","0+"]]}],
   ["records","records","0+",{"nullable":"0"}],
   ["acquiredRecords","[]struct","0+",{"fields":[
    ["firstOffset","int64","0+"],
    ["lastOffset","int64","0+"],
    ["deliveryCount","int16","0+"]]}]]}]]}],
 ["nodeEndpoints","[]struct","0+",{"fields":[
  ["nodeId","int32","0+"],
  ["host","string","0+"],
  ["port","int32","0+"],
  ["rack","string","0+",{"nullable":"0+","default":null}]]}]]}""",
    79: """{"name":"ShareAcknowledgeResponse","versions":"1-2","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["acquisitionLockTimeoutMs","int32","2+"],
 ["responses","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}],
   ["currentLeader","struct","0+",{"fields":[
    ["leaderId","int32","0+"],
    ["leaderEpoch","int32","0+"]]}]]}]]}],
 ["nodeEndpoints","[]struct","0+",{"fields":[
  ["nodeId","int32","0+"],
  ["host","string","0+"],
  ["port","int32","0+"],
  ["rack","string","0+",{"nullable":"0+","default":null}]]}]]}""",
    80: """{"name":"AddRaftVoterResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}]]}""",
    81: """{"name":"RemoveRaftVoterResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+"}]]}""",
    82: """{"name":"UpdateRaftVoterResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["currentLeader","struct","0+",{"tagged":"0+","tag":0,"fields":[
  ["leaderId","int32","0+",{"default":-1}],
  ["leaderEpoch","int32","0+",{"default":-1}],
  ["host","string","0+"],
  ["port","int32","0+"]]}]]}""",
    83: """{"name":"InitializeShareGroupStateResponse","versions":"0","flexible":"0+","fields":[
 ["results","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}]]}""",
    84: """{"name":"ReadShareGroupStateResponse","versions":"0","flexible":"0+","fields":[
 ["results","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}],
   ["stateEpoch","int32","0+"],
   ["startOffset","int64","0+"],
   ["stateBatches","[]struct","0+",{"fields":[
    ["firstOffset","int64","0+"],
    ["lastOffset","int64","0+"],
    ["deliveryState","int8","0+"],
    ["deliveryCount","int16","0+"]]}]]}]]}]]}""",
    85: """{"name":"WriteShareGroupStateResponse","versions":"0-1","flexible":"0+","fields":[
 ["results","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}]]}""",
    86: """{"name":"DeleteShareGroupStateResponse","versions":"0","flexible":"0+","fields":[
 ["results","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}]]}""",
    87: """{"name":"ReadShareGroupStateSummaryResponse","versions":"0-1","flexible":"0+","fields":[
 ["results","[]struct","0+",{"fields":[
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partition","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}],
   ["stateEpoch","int32","0+"],
   ["leaderEpoch","int32","0+"],
   ["startOffset","int64","0+"],
   ["deliveryCompleteCount","int32","1+",{"default":-1}]]}]]}]]}""",
    88: """{"name":"StreamsGroupHeartbeatResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["memberId","string","0+"],
 ["memberEpoch","int32","0+"],
 ["heartbeatIntervalMs","int32","0+"],
 ["acceptableRecoveryLag","int32","0+"],
 ["taskOffsetIntervalMs","int32","0+"],
 ["status","[]struct","0+",{"nullable":"0+","fields":[
  ["statusCode","int8","0+"],
  ["statusDetail","string","0+"]]}],
 ["activeTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["standbyTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["warmupTasks","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["subtopologyId","string","0+"],
  ["partitions","[]int32","0+"]]}],
 ["endpointInformationEpoch","int32","0+"],
 ["partitionsByUserEndpoint","[]struct","0+",{"nullable":"0+","default":null,"fields":[
  ["userEndpoint","struct","0+",{"fields":[
   ["host","string","0+"],
   ["port","uint16","0+"]]}],
  ["activePartitions","[]struct","0+",{"fields":[
   ["topic","string","0+"],
   ["partitions","[]int32","0+"]]}],
  ["standbyPartitions","[]struct","0+",{"fields":[
   ["topic","string","0+"],
   ["partitions","[]int32","0+"]]}]]}]]}""",
    89: """{"name":"StreamsGroupDescribeResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["groups","[]struct","0+",{"fields":[
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}],
  ["groupId","string","0+"],
  ["groupState","string","0+"],
  ["groupEpoch","int32","0+"],
  ["assignmentEpoch","int32","0+"],
  ["topology","struct","0+",{"nullable":"0+","default":null,"fields":[
   ["epoch","int32","0+"],
   ["subtopologies","[]struct","0+",{"nullable":"0+","default":null,"fields":[
    ["subtopologyId","string","0+"],
    ["sourceTopics","[]string","0+"],
    ["repartitionSinkTopics","[]string","0+"],
    ["stateChangelogTopics","[]struct","0+",{"fields":[
     ["name","string","0+"],
     ["partitions","int32","0+"],
     ["replicationFactor","int16","0+"],
     ["topicConfigs","[]struct","0+",{"fields":[
      ["key","string","0+"],
      ["value","string","0+"]]}]]}],
    ["repartitionSourceTopics","[]struct","0+",{"fields":[
     ["name","string","0+"],
     ["partitions","int32","0+"],
     ["replicationFactor","int16","0+"],
     ["topicConfigs","[]struct","0+",{"fields":[
      ["key","string","0+"],
      ["value","string","0+"]]}]]}]]}]]}],
  ["members","[]struct","0+",{"fields":[
   ["memberId","string","0+"],
   ["memberEpoch","int32","0+"],
   ["instanceId","string","0+",{"nullable":"0+","default":null}],
   ["rackId","string","0+",{"nullable":"0+","default":null}],
   ["clientId","string","0+"],
   ["clientHost","string","0+"],
   ["topologyEpoch","int32","0+"],
   ["processId","string","0+"],
   ["userEndpoint","struct","0+",{"nullable":"0+","default":null,"fields":[
    ["host","string","0+"],
    ["port","uint16","0+"]]}],
   ["clientTags","[]struct","0+",{"fields":[
    ["key","string","0+"],
    ["value","string","0+"]]}],
   ["taskOffsets","[]struct","0+",{"fields":[
    ["subtopologyId","string","0+"],
    ["partition","int32","0+"],
    ["offset","int64","0+"]]}],
   ["taskEndOffsets","[]struct","0+",{"fields":[
    ["subtopologyId","string","0+"],
    ["partition","int32","0+"],
    ["offset","int64","0+"]]}],
   ["assignment","struct","0+",{"fields":[
    ["activeTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}],
    ["standbyTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}],
    ["warmupTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}]]}],
   ["targetAssignment","struct","0+",{"fields":[
    ["activeTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}],
    ["standbyTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}],
    ["warmupTasks","[]struct","0+",{"fields":[
     ["subtopologyId","string","0+"],
     ["partitions","[]int32","0+"]]}]]}],
   ["isClassic","bool","0+"]]}],
  ["authorizedOperations","int32","0+",{"default":-2147483648}]]}]]}""",
    90: """{"name":"DescribeShareGroupOffsetsResponse","versions":"0-1","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["groups","[]struct","0+",{"fields":[
  ["groupId","string","0+"],
  ["topics","[]struct","0+",{"fields":[
   ["topicName","string","0+"],
   ["topicId","uuid","0+"],
   ["partitions","[]struct","0+",{"fields":[
    ["partitionIndex","int32","0+"],
    ["startOffset","int64","0+"],
    ["leaderEpoch","int32","0+"],
    ["lag","int64","1+",{"default":-1}],
    ["errorCode","int16","0+"],
    ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}""",
    91: """{"name":"AlterShareGroupOffsetsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["responses","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["topicId","uuid","0+"],
  ["partitions","[]struct","0+",{"fields":[
   ["partitionIndex","int32","0+"],
   ["errorCode","int16","0+"],
   ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}]]}""",
    92: """{"name":"DeleteShareGroupOffsetsResponse","versions":"0","flexible":"0+","fields":[
 ["throttleTimeMs","int32","0+"],
 ["errorCode","int16","0+"],
 ["errorMessage","string","0+",{"nullable":"0+","default":null}],
 ["responses","[]struct","0+",{"fields":[
  ["topicName","string","0+"],
  ["topicId","uuid","0+"],
  ["errorCode","int16","0+"],
  ["errorMessage","string","0+",{"nullable":"0+","default":null}]]}]]}""",
}
