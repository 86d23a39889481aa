module @jit_eight attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x4xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}", tf.aliasing_output = 0 : i32}, %arg1: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,4]<=[4,2]T(1,0)}"}, %arg2: tensor<3x8x2xf32> {mhlo.sharding = "{devices=[1,2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"}, %arg3: tensor<f32> {mhlo.sharding = "{replicated}"}) -> (tensor<8x4xf32> {jax.result_info = "result[0]", mhlo.sharding = "{devices=[4,2]<=[8]}"}, tensor<8x4xf32> {jax.result_info = "result[1]", mhlo.sharding = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"}, tensor<4xf32> {jax.result_info = "result[2]", mhlo.sharding = "{devices=[4,2]<=[8] last_tile_dim_replicate}"}, tensor<3x8x2xf32> {jax.result_info = "result[3]", mhlo.sharding = "{devices=[1,8,1]<=[4,2]T(1,0)}"}, tensor<f32> {jax.result_info = "result[4]", mhlo.sharding = "{replicated}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{devices=[4,2]<=[8]}"} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<8x4xf32>) -> tensor<2x2xf32>
    %2 = call @shmap_body(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {backend_config = "", mhlo.sharding = "{devices=[4,2]<=[8]}"} : (tensor<2x2xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.add %arg0, %arg1 : tensor<8x4xf32>
    %6 = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
    %7 = stablehlo.multiply %5, %6 : tensor<8x4xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<3x8x2xf32>
    %10 = stablehlo.multiply %arg2, %9 : tensor<3x8x2xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %11 = stablehlo.add %arg3, %cst_1 : tensor<f32>
    return %4, %7, %8, %10, %11 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<3x8x2xf32>, tensor<f32>
  }
  func.func private @shmap_body(%arg0: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "[('x',), ('y',)]"}) {
    %c = stablehlo.constant dense<2> : tensor<ui32>
    %c_0 = stablehlo.constant dense<4> : tensor<ui32>
    %0 = stablehlo.partition_id : tensor<ui32>
    %1 = stablehlo.divide %0, %c : tensor<ui32>
    %2 = stablehlo.remainder %1, %c_0 : tensor<ui32>
    %3 = stablehlo.convert %2 : (tensor<ui32>) -> tensor<i32>
    %c_1 = stablehlo.constant dense<2> : tensor<i32>
    %4 = stablehlo.multiply %c_1, %3 : tensor<i32>
    %c_2 = stablehlo.constant dense<1> : tensor<ui32>
    %c_3 = stablehlo.constant dense<2> : tensor<ui32>
    %5 = stablehlo.partition_id : tensor<ui32>
    %6 = stablehlo.divide %5, %c_2 : tensor<ui32>
    %7 = stablehlo.remainder %6, %c_3 : tensor<ui32>
    %8 = stablehlo.convert %7 : (tensor<ui32>) -> tensor<i32>
    %9 = stablehlo.add %4, %8 : tensor<i32>
    %10 = stablehlo.convert %9 : (tensor<i32>) -> tensor<f32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
    %12 = stablehlo.add %arg0, %11 : tensor<2x2xf32>
    return %12 : tensor<2x2xf32>
  }
}
