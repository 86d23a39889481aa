module @jit_parts attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x4xf64>, %arg1: tensor<3x4xf64>, %arg2: tensor<8xcomplex<f64>>, %arg3: tensor<2xi32>) -> (tensor<3xf64> {jax.result_info = "result[0]"}, tensor<12x10xf64> {jax.result_info = "result[1]"}, tensor<8xcomplex<f64>> {jax.result_info = "result[2]"}, tensor<i32> {jax.result_info = "result[3]"}, tensor<3xf64> {jax.result_info = "result[4]"}) {
    %cst = stablehlo.constant dense<"0x0000000000002EC00000000000802DC00000000000002DC00000000000802CC00000000000002CC00000000000802BC00000000000002BC00000000000802AC00000000000002AC000000000008029C000000000000029C000000000008028C000000000000028C000000000008027C000000000000027C000000000008026C000000000000026C000000000008025C000000000000025C000000000008024C000000000000024C000000000008023C000000000000023C000000000008022C000000000000022C000000000008021C000000000000021C000000000008020C000000000000020C00000000000001FC00000000000001EC00000000000001DC00000000000001CC00000000000001BC00000000000001AC000000000000019C000000000000018C000000000000017C000000000000016C000000000000015C000000000000014C000000000000013C000000000000012C000000000000011C000000000000010C00000000000000EC00000000000000CC00000000000000AC000000000000008C000000000000006C000000000000004C000000000000002C000000000000000C0000000000000FCBF000000000000F8BF000000000000F4BF000000000000F0BF000000000000E8BF000000000000E0BF000000000000D0BF0000000000000000000000000000D03F000000000000E03F000000000000E83F000000000000F03F000000000000F43F000000000000F83F000000000000FC3F000000000000004000000000000002400000000000000440000000000000064000000000000008400000000000000A400000000000000C400000000000000E4000000000000010400000000000001140000000000000124000000000000013400000000000001440000000000000154000000000000016400000000000001740000000000000184000000000000019400000000000001A400000000000001B400000000000001C400000000000001D400000000000001E400000000000001F40000000000000204000000000008020400000000000002140000000000080214000000000000022400000000000802240000000000000234000000000008023400000000000002440000000000080244000000000000025400000000000802540000000000000264000000000008026400000000000002740000000000080274000000000000028400000000000802840000000000000294000000000008029400000000000002A400000000000802A400000000000002B400000000000802B400000000000002C400000000000802C400000000000002D400000000000802D40"> : tensor<12x10xf64>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %1 = stablehlo.compare LT, %arg3, %0, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_0 = stablehlo.constant dense<8> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %3 = stablehlo.add %arg3, %2 : tensor<2xi32>
    %4 = stablehlo.select %1, %3, %arg3 : tensor<2xi1>, tensor<2xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xf64>, tensor<2x1xi32>) -> tensor<2x4xf64>
    %7 = stablehlo.tanh %6 : tensor<2x4xf64>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
    %8 = stablehlo.reduce(%7 init: %cst_1) applies stablehlo.add across dimensions = [0] : (tensor<2x4xf64>, tensor<f64>) -> tensor<4xf64>
    %9 = stablehlo.dot_general %arg1, %8, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf64>, tensor<4xf64>) -> tensor<3xf64>
    %10 = call @isinf(%9) : (tensor<3xf64>) -> tensor<3xi1>
    %cst_2 = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
    %11 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f64>) -> tensor<3xf64>
    %12 = stablehlo.maximum %9, %11 : tensor<3xf64>
    %cst_3 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %13 = call @_where(%10, %cst_3, %12) : (tensor<3xi1>, tensor<f64>, tensor<3xf64>) -> tensor<3xf64>
    %cst_4 = stablehlo.constant dense<(5.000000e-01,1.500000e+00)> : tensor<complex<f64>>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<complex<f64>>) -> tensor<8xcomplex<f64>>
    %15 = stablehlo.multiply %arg2, %14 : tensor<8xcomplex<f64>>
    %16 = call @fft(%15) : (tensor<8xcomplex<f64>>) -> tensor<8xcomplex<f64>>
    %17 = stablehlo.slice %8 [0:1] : (tensor<4xf64>) -> tensor<1xf64>
    %18 = stablehlo.reshape %17 : (tensor<1xf64>) -> tensor<f64>
    %19 = stablehlo.broadcast_in_dim %18, dims = [] : (tensor<f64>) -> tensor<12x10xf64>
    %20 = stablehlo.add %cst, %19 : tensor<12x10xf64>
    %21 = call @argmax(%9) : (tensor<3xf64>) -> tensor<i32>
    %22 = call @sort(%9) : (tensor<3xf64>) -> tensor<3xf64>
    return %13, %20, %16, %21, %22 : tensor<3xf64>, tensor<12x10xf64>, tensor<8xcomplex<f64>>, tensor<i32>, tensor<3xf64>
  }
  func.func private @isinf(%arg0: tensor<3xf64>) -> tensor<3xi1> {
    %0 = stablehlo.abs %arg0 : tensor<3xf64>
    %cst = stablehlo.constant dense<0x7FF0000000000000> : tensor<f64>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f64>) -> tensor<3xf64>
    %2 = stablehlo.compare EQ, %0, %1, FLOAT : (tensor<3xf64>, tensor<3xf64>) -> tensor<3xi1>
    return %2 : tensor<3xi1>
  }
  func.func private @_where(%arg0: tensor<3xi1>, %arg1: tensor<f64>, %arg2: tensor<3xf64>) -> tensor<3xf64> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f64>) -> tensor<3xf64>
    %1 = stablehlo.select %arg0, %0, %arg2 : tensor<3xi1>, tensor<3xf64>
    return %1 : tensor<3xf64>
  }
  func.func private @fft(%arg0: tensor<8xcomplex<f64>>) -> tensor<8xcomplex<f64>> {
    %0 = stablehlo.fft %arg0, type = FFT, length = [8] : (tensor<8xcomplex<f64>>) -> tensor<8xcomplex<f64>>
    return %0 : tensor<8xcomplex<f64>>
  }
  func.func private @argmax(%arg0: tensor<3xf64>) -> tensor<i32> {
    %0 = stablehlo.iota dim = 0 : tensor<3xi32>
    %cst = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.reduce(%arg0 init: %cst), (%0 init: %c) across dimensions = [0] : (tensor<3xf64>, tensor<3xi32>, tensor<f64>, tensor<i32>) -> (tensor<f64>, tensor<i32>)
     reducer(%arg1: tensor<f64>, %arg3: tensor<f64>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
      %2 = stablehlo.compare GT, %arg1, %arg3, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %arg1, %arg3, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %6 = stablehlo.compare LT, %arg2, %arg4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<f64>
      %10 = stablehlo.select %8, %arg2, %arg4 : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f64>, tensor<i32>
    }
    return %1#1 : tensor<i32>
  }
  func.func private @sort(%arg0: tensor<3xf64>) -> tensor<3xf64> {
    %0 = "stablehlo.sort"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f64>, %arg2: tensor<f64>):
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %1 = stablehlo.compare EQ, %arg1, %cst, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %2 = stablehlo.select %1, %cst_0, %arg1 : tensor<i1>, tensor<f64>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_1 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
      %4 = stablehlo.select %3, %cst_1, %2 : tensor<i1>, tensor<f64>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %5 = stablehlo.compare EQ, %arg2, %cst_2, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %6 = stablehlo.select %5, %cst_3, %arg2 : tensor<i1>, tensor<f64>
      %7 = stablehlo.compare NE, %arg2, %arg2, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_4 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
      %8 = stablehlo.select %7, %cst_4, %6 : tensor<i1>, tensor<f64>
      %9 = stablehlo.compare LT, %4, %8, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<3xf64>) -> tensor<3xf64>
    return %0 : tensor<3xf64>
  }
}
