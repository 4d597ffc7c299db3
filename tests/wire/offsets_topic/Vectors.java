import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/**
 * What Kafka's own classes make of records of __consumer_offsets; run by capture.py.
 *
 * <p>Each line of the input is KEY VALUE in hexadecimal, "-" for no value; each line of the output
 * is KEY VALUE KEY_AS_JSON VALUE_AS_JSON, with tabs between. First come records of every version of
 * each value, made here, since a broker writes the newest alone.
 */
public class Vectors {
  private static final HexFormat HEX = HexFormat.of();

  public static void main(String[] args) {
    for (short version = 0; version <= OffsetCommitValue.HIGHEST_SUPPORTED_VERSION; version++) {
      OffsetCommitKey key = new OffsetCommitKey().setGroup("gr\u00fcn").setTopic("orders").setPartition(7);
      print(key, offset(version), version);
    }
    LegacyOffsetCommitKey legacy = new LegacyOffsetCommitKey().setGroup("g").setTopic("t").setPartition(1);
    print(legacy, new OffsetCommitValue().setOffset(3).setMetadata("").setCommitTimestamp(9), (short) 0);
    for (short version = 0; version <= GroupMetadataValue.HIGHEST_SUPPORTED_VERSION; version++) {
      print(new GroupMetadataKey().setGroup("g"), group(version, true), version);
      print(new GroupMetadataKey().setGroup("g"), group(version, false), version);
    }
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      String[] parts = lines.nextLine().split(" ");
      read(HEX.parseHex(parts[0]), parts[1].equals("-") ? null : HEX.parseHex(parts[1]));
    }
  }

  private static OffsetCommitValue offset(short version) {
    OffsetCommitValue value =
        new OffsetCommitValue().setOffset(1L << 40).setMetadata("note \u00e9").setCommitTimestamp(1700000000123L);
    if (version == 1) value.setExpireTimestamp(1800000000123L);
    if (version >= 3) value.setLeaderEpoch(5);
    if (version >= 4) value.setTopicId(new Uuid(0x0123456789abcdefL, 0x1122334455667788L));
    return value;
  }

  private static GroupMetadataValue group(short version, boolean full) {
    GroupMetadataValue value =
        new GroupMetadataValue().setProtocolType(full ? "consumer" : "").setGeneration(full ? 3 : 0);
    if (version >= 2) value.setCurrentStateTimestamp(1700000000456L);
    if (!full) return value.setProtocol(null).setLeader(null).setMembers(List.of());
    GroupMetadataValue.MemberMetadata member =
        new GroupMetadataValue.MemberMetadata()
            .setMemberId("c-1")
            .setClientId("c")
            .setClientHost("/127.0.0.1")
            .setSessionTimeout(45000)
            .setSubscription(new byte[] {0, 1, 2})
            .setAssignment(new byte[] {});
    if (version >= 1) member.setRebalanceTimeout(300000);
    if (version >= 3) member.setGroupInstanceId("static-1");
    return value.setProtocol("range").setLeader("c-1").setMembers(List.of(member, member.duplicate()));
  }

  private static void print(ApiMessage key, ApiMessage value, short version) {
    show(
        MessageUtil.toCoordinatorTypePrefixedBytes(key),
        MessageUtil.toVersionPrefixedBytes(version, value),
        key,
        value,
        version);
  }


  private static void read(byte[] keyBytes, byte[] valueBytes) {
    ByteBuffer keyBuffer = ByteBuffer.wrap(keyBytes);
    short type = keyBuffer.getShort();
    boolean isOffset = type == 1;
    if (!isOffset && type != 2) throw new IllegalArgumentException("a key of type " + type);
    ApiMessage key = isOffset ? new OffsetCommitKey() : new GroupMetadataKey();
    key.read(new ByteBufferAccessor(keyBuffer), (short) 0);
    if (valueBytes == null) {
      show(keyBytes, null, key, null, (short) 0);
      return;
    }
    ByteBuffer valueBuffer = ByteBuffer.wrap(valueBytes);
    short version = valueBuffer.getShort();
    ApiMessage value = isOffset ? new OffsetCommitValue() : new GroupMetadataValue();
    value.read(new ByteBufferAccessor(valueBuffer), version);
    show(keyBytes, valueBytes, key, value, version);
  }

  private static void show(byte[] keyBytes, byte[] valueBytes, ApiMessage key, ApiMessage value, short version) {
    System.out.println(
        String.join(
            "\t",
            HEX.formatHex(keyBytes),
            valueBytes == null ? "-" : HEX.formatHex(valueBytes),
            CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key).toString(),
            value == null ? "null" : CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, version).toString()));
  }
}
